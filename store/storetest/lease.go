package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var leaseCases = []testCase{
	{"one that ran out makes the task ready again, counted as lost", get, func(e *env) {
		e.ready("1")
		old := e.leaseFor("1", e.short(300*time.Millisecond))
		e.nothing("it is leased")
		e.advanceTo(old.LeaseUntil)
		t := e.state("1", store.StateReady)
		if t.Lost != 1 || t.Failures != 0 || !t.Due.Equal(old.Due) || t.Generation != 0 {
			e.Errorf("lost %d, failures %d, due %v, generation %d; want 1, 0, the old due %v, 0", t.Lost, t.Failures, t.Due, t.Generation, old.Due)
		}
		l := e.lease("1")
		if l.Attempt() != 2 || l.Receipt == old.Receipt {
			e.Errorf("attempt %d with receipt %q, want 2 and another than %q", l.Attempt(), l.Receipt, old.Receipt)
		}
		e.ack(l)
	}},
	{"over at its deadline, not a nanosecond before", fakeClock, func(e *env) {
		for i, d := range []time.Duration{time.Millisecond, e.short(500 * time.Millisecond), 999 * time.Millisecond, 1500 * time.Millisecond} {
			// Claimed in the middle of a millisecond. A server's clock may have no more
			// than microseconds.
			for _, finer := range []time.Duration{0, time.Microsecond, 499 * time.Microsecond} {
				id := fmt.Sprint(i, finer)
				e.ready(id)
				e.advanceTo(store.CeilMilli(e.now()))
				e.advance(finer)
				now := e.now()
				l := e.leaseFor(id, d)
				if want := store.CeilMilli(now.Add(d)); !l.LeaseUntil.Equal(want) {
					e.Fatalf("lease of %v from %v ends at %v, want %v", d, now, l.LeaseUntil, want)
				}
				e.advance(l.LeaseUntil.Sub(e.now()) - 1)
				e.nothing("the lease has a nanosecond to go")
				e.advance(1)
				e.settled(store.Stale, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
				e.ack(e.lease(id))
			}
		}
	}},
	{"good to its last millisecond", fakeClock, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.advance(l.LeaseUntil.Sub(e.now()) - time.Millisecond)
		e.ack(l)
	}},
	{"a receipt is stale from its deadline, though nobody claimed the task", 0, func(e *env) {
		e.ready("1")
		l := e.leaseFor("1", e.short(200*time.Millisecond))
		e.advanceTo(l.LeaseUntil)
		e.stale(l, "its lease ran out")
		e.counts(0, 1, 0, 0)
		e.lease("1")
	}},
	{"a stale worker changes nothing about the new holder's lease", 0, func(e *env) {
		e.ready("1")
		old := e.leaseFor("1", e.short(200*time.Millisecond))
		e.advanceTo(old.LeaseUntil)
		l := e.lease("1")
		e.stale(old, "another has the task")
		e.counts(0, 0, 1, 0)
		e.ack(l)
		e.stale(old, "the other is done")
		e.nothing("it was done once")
	}},
	{"starts when the task is claimed, not when it is scheduled", fakeClock, func(e *env) {
		e.set2s()
		e.create(store.NewTask{ID: "1", Delay: 15 * time.Second})
		for range 29 {
			e.advance(e.short(500 * time.Millisecond))
			e.nothing("it is due after 15 s")
		}
		e.advance(e.short(500 * time.Millisecond))
		l := e.leaseFor("1", 2*time.Second)
		if l.Attempt() != 1 {
			e.Errorf("attempt %d, want 1", l.Attempt())
		}
		e.advance(1999 * time.Millisecond)
		e.nothing("its lease has a millisecond to go")
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: 15 * time.Second})
		for range 29 {
			e.advance(e.short(500 * time.Millisecond))
			e.nothing("it is to be tried again after 15 s")
		}
		e.advance(e.short(500 * time.Millisecond))
		l = e.leaseFor("1", 2*time.Second)
		if l.Failures != 1 || l.Lost != 0 {
			e.Errorf("failures %d, lost %d; want 1, 0", l.Failures, l.Lost)
		}
	}},
	{"dead when as many ran out as may", settings | get, func(e *env) {
		e.set(func(s *store.Settings) { s.MaxLost = 3 })
		e.create(store.NewTask{ID: "1", Due: e.past(), MaxAttempts: 1}) // attempts are another counter
		for n := 1; n <= 3; n++ {
			l := e.leaseFor("1", e.short(100*time.Millisecond))
			if l.Attempt() != n || l.Lost != n-1 {
				e.Fatalf("attempt %d, lost %d; want %d, %d", l.Attempt(), l.Lost, n, n-1)
			}
			e.advanceTo(l.LeaseUntil)
		}
		e.nothing("its lease ran out three times")
		t := e.state("1", store.StateDead)
		if t.LastError != "lease expired" || t.Lost != 3 || t.Failures != 0 {
			e.Errorf("dead with error %q, lost %d, failures %d; want \"lease expired\", 3, 0", t.LastError, t.Lost, t.Failures)
		}
		e.counts(0, 0, 0, 1)
	}},
	{"failures and lost have a limit each", settings | get, func(e *env) {
		e.set(func(s *store.Settings) { s.MaxLost, s.MaxAttempts = 3, 3 })
		e.ready("1")
		for _, fails := range []bool{true, false, true, false} {
			lease := e.short(100 * time.Millisecond)
			if fails {
				lease = time.Minute
			}
			l := e.leaseFor("1", lease)
			if fails {
				e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Error: "boom"})
				e.advance(time.Millisecond)
			} else {
				e.advanceTo(l.LeaseUntil)
			}
		}
		t := e.state("1", store.StateReady)
		if t.Failures != 2 || t.Lost != 2 || t.Attempt() != 5 || t.LastError != "boom" {
			e.Errorf("failures %d, lost %d, attempt %d, error %q; want 2, 2, 5, boom", t.Failures, t.Lost, t.Attempt(), t.LastError)
		}
		l := e.lease("1")
		e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Error: "boom"})
	}},
	{"extend moves the deadline on", get, func(e *env) {
		e.ready("1")
		l := e.leaseFor("1", e.short(300*time.Millisecond))
		for range 3 {
			before := e.now()
			r := e.settled(store.Extended, store.Settlement{Receipt: l.Receipt, Action: store.Extend, Lease: e.short(300 * time.Millisecond)})
			e.between("new deadline", r.At, before, e.now(), e.short(300*time.Millisecond))
			t := e.state("1", store.StateLeased)
			if !t.LeaseUntil.Equal(r.At) || t.Worker != "w" {
				e.Errorf("leased by %q until %v, want w until %v", t.Worker, t.LeaseUntil, r.At)
			}
			e.advance(e.short(150 * time.Millisecond))
			e.nothing("the lease was extended")
		}
		e.ack(l)
	}},
	{"extend may shorten", 0, func(e *env) {
		e.ready("1")
		l := e.leaseFor("1", time.Hour)
		r := e.settled(store.Extended, store.Settlement{Receipt: l.Receipt, Action: store.Extend, Lease: e.short(100 * time.Millisecond)})
		e.advanceTo(r.At)
		e.stale(l, "the shorter lease ran out")
		if l := e.lease("1"); l.Lost != 1 {
			e.Errorf("lost %d, want 1", l.Lost)
		}
	}},
	{"zero is the queue's setting, for claim and extend", settings, func(e *env) {
		claim := store.ClaimRequest{Queue: q, Max: 1}
		e.ready("1", "2")
		before := e.now()
		l := e.claimRequests(claim)[0].Tasks[0]
		e.between("default lease", l.LeaseUntil, before, e.now(), 30*time.Second)
		e.set(func(s *store.Settings) { s.Lease = 5 * time.Second })
		before = e.now()
		l2 := e.claimRequests(claim)[0].Tasks[0]
		e.between("lease as set", l2.LeaseUntil, before, e.now(), 5*time.Second)
		before = e.now()
		r := e.settled(store.Extended, store.Settlement{Receipt: l.Receipt, Action: store.Extend})
		e.between("extended as set", r.At, before, e.now(), 5*time.Second)
	}},
	{"many run out at once", get, func(e *env) {
		past := e.past()
		var tasks []store.NewTask
		for i := range 5000 {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprint(i), Due: past})
		}
		e.create(tasks...)
		r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 5000, Lease: e.short(500 * time.Millisecond)})[0]
		if len(r.Tasks) != 5000 {
			e.Fatalf("claimed %d of 5000", len(r.Tasks))
		}
		e.advanceTo(r.Tasks[4999].LeaseUntil)
		e.counts(0, 5000, 0, 0)
		again := e.claim(5000)
		for i, l := range again {
			if l.ID != tasks[i].ID || l.Lost != 1 {
				e.Fatalf("number %d is %q, lost %d; want %q, lost once", i, l.ID, l.Lost, tasks[i].ID)
			}
		}
		if len(again) != 5000 {
			e.Fatalf("claimed %d of 5000 again", len(again))
		}
	}},
}

// set2s makes the queue's lease two seconds, where the store has settings.
func (e *env) set2s() {
	if e.caps.Settings {
		e.set(func(s *store.Settings) { s.Lease = 2 * time.Second })
	}
}
