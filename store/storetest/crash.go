package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

func isVersion(err error) bool { return errors.Is(err, store.ErrVersion) }

// reopen ends the store as a crash would and goes on with what is left.
func (e *env) reopen() {
	e.Helper()
	if e.caps.ProcessLeases {
		e.log.Crash()
	}
	e.in.Store = e.in.Reopen(e.TB)
	e.st.Store = history.Record(e.in.Store, e.log)
}

var crashCases = []testCase{
	{"every task outlives it, as it was", reopen | get, func(e *env) {
		e.create(store.NewTask{ID: "s", Delay: time.Hour, Payload: []byte("\x00\xff"), Headers: map[string]string{"a": "b"}, MaxAttempts: 3})
		e.die("d", "boom")
		e.ready("f")
		l := e.lease("f")
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Hour, Error: "again"})
		if e.caps.UniqueIDs {
			e.create(store.NewTask{ID: "g", Delay: time.Hour})
			e.schedule(store.NewTask{Queue: q, ID: "g", Delay: 2 * time.Hour, Conflict: store.ConflictReplace})
		}
		names := []string{"s", "d", "f", "g"}
		var before []store.Task
		for _, id := range names {
			before = append(before, e.task(id))
		}
		e.reopen()
		for i, id := range names {
			e.same("after a crash", e.task(id), before[i])
		}
		e.counts(3, 0, 0, 1)
	}},
	{"a receipt outlives it", reopen | receipts, func(e *env) {
		e.ready("1", "2", "3")
		leases := e.claim(3)
		e.settled(store.Acked, store.Settlement{Receipt: leases[2].Receipt, Action: store.Ack})
		e.reopen()
		e.nothing("all are leased or done")
		e.settled(store.Extended, store.Settlement{Receipt: leases[0].Receipt, Action: store.Extend, Lease: time.Hour})
		e.ack(leases[0])
		e.settled(store.Retrying, store.Settlement{Receipt: leases[1].Receipt, Action: store.Retry, Delay: time.Hour})
		e.stale(leases[2], "acked before the crash")
	}},
	{"a lease runs out after it, and counts as lost", reopen | receipts, func(e *env) {
		e.ready("1")
		old := e.leaseFor("1", e.short(500*time.Millisecond))
		e.reopen()
		if e.in.Advance != nil {
			e.nothing("the lease is not over")
		}
		e.advanceTo(old.LeaseUntil)
		e.stale(old, "ran out")
		if l := e.lease("1"); l.Lost != 1 {
			e.Errorf("lost %d, want 1", l.Lost)
		}
	}},
	{"a task that kills its process again and again is buried", reopen | settings | get, func(e *env) {
		e.set(func(s *store.Settings) { s.MaxLost = 3 })
		e.ready("poison", "good")
		for range 3 {
			l := e.leaseFor("poison", e.short(100*time.Millisecond))
			e.reopen()
			e.advanceTo(l.LeaseUntil)
		}
		e.lease("good")
		if t := e.state("poison", store.StateDead); t.LastError != "lease expired" {
			e.Errorf("dead because of %q", t.LastError)
		}
	}},
	{"a lease ends with its process, and counts as lost", reopen, func(e *env) {
		if !e.caps.ProcessLeases {
			e.Skip("leases outlive the process")
		}
		e.ready("1", "2")
		old := e.leaseFor("1", time.Hour)
		e.reopen()
		e.stale(old, "its process is gone")
		lost := make(map[string]int)
		for len(lost) < 2 {
			for _, l := range e.claim(2) {
				lost[l.ID] = l.Lost
			}
			e.advance(e.short(5 * time.Millisecond))
		}
		if lost["1"] != 1 || lost["2"] != 0 {
			e.Errorf("lost %v, want once the one that was leased", lost)
		}
	}},
	{"a receipt from before it is stale when the task was claimed again", reopen | receipts, func(e *env) {
		e.ready("1")
		old := e.lease("1")
		e.settled(store.Released, store.Settlement{Receipt: old.Receipt, Action: store.Release})
		e.reopen()
		l := e.lease("1")
		e.stale(old, "released before the crash")
		e.reopen()
		e.stale(old, "released two crashes ago")
		e.ack(l)
	}},
	{"cancelled stays cancelled", reopen | cancel, func(e *env) {
		r := e.create(store.NewTask{ID: "1", Delay: e.short(300 * time.Millisecond)}, store.NewTask{ID: "2", Delay: e.short(300 * time.Millisecond)})
		e.ready("3")
		l := e.lease("3")
		e.cancel(store.Cancelled, "1", false)
		e.cancel(store.Cancelled, "3", true)
		e.reopen()
		e.advanceTo(r[1].Due)
		e.sameIDs("claim", ids(e.claim(10)), []string{"2"})
		e.stale(l, "cancelled before the crash")
		e.cancel(store.NotFound, "1", false)
	}},
	{"rescheduled stays rescheduled", reopen | reschedule, func(e *env) {
		e.ready("1", "2")
		due := e.move(store.Rescheduled, "1", e.now().Add(time.Hour)).Due
		e.move(store.Rescheduled, "2", due.Add(time.Hour))
		e.reopen()
		e.next(due)
	}},
	{"the order stays, and new tasks come after the old", reopen | ordered, func(e *env) {
		past := e.past()
		for _, id := range []string{"c", "a", "b"} {
			e.create(store.NewTask{ID: id, Due: past})
		}
		e.reopen()
		e.create(store.NewTask{ID: "0", Due: past})
		e.reopen()
		e.create(store.NewTask{ID: "1", Due: past})
		e.sameIDs("claim", ids(e.claim(10)), []string{"c", "a", "b", "0", "1"})
	}},
	{"settings and queues outlive it", reopen | settings, func(e *env) {
		want := e.set(func(s *store.Settings) { s.MaxAttempts, s.Paused, s.Backoff.Factor = 7, true, 1.25 })
		e.ready("1")
		e.reopen()
		if got, err := e.st.Settings(e.ctx, q); err != nil || got != want {
			e.Errorf("settings %+v, %v; want %+v", got, err, want)
		}
		e.nothing("the queue is paused")
		queues, err := e.st.Queues(e.ctx)
		if err != nil || len(queues) != 1 {
			e.Errorf("queues %q, %v", queues, err)
		}
	}},
	{"what came due meanwhile goes out, nothing early", reopen, func(e *env) {
		var tasks []store.NewTask
		for i := range 100 {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprintf("%02d", i), Delay: time.Duration(100+i) * time.Millisecond})
		}
		r := e.create(tasks...)
		if e.in.Advance != nil {
			e.advanceTo(r[49].Due)
			e.reopen()
			if got := e.claim(100); len(got) != 50 {
				e.Errorf("claimed %d, want the 50 that are due", len(got))
			}
		} else {
			e.reopen()
		}
		e.advanceTo(r[99].Due)
		e.reopen()
		e.claim(100)
		e.counts(0, 0, 100, 0)
	}},
	{"many times over in the middle of ten thousand", reopen | receipts, func(e *env) {
		const n = 10_000
		past := e.past()
		tasks := make([]store.NewTask, n)
		for i := range tasks {
			tasks[i] = store.NewTask{ID: fmt.Sprint(i), Due: past.Add(time.Duration(i) * time.Millisecond)}
		}
		e.create(tasks...)
		done := make(map[string]bool)
		for round := 0; len(done) < n; round++ {
			leases := e.claim(700)
			if len(leases) == 0 {
				e.Fatalf("nothing to claim after %d of %d", len(done), n)
			}
			if round%2 == 0 {
				e.reopen()
			}
			var settle []store.Settlement
			for _, l := range leases {
				if done[l.ID] {
					e.Fatalf("task %s was acked before", l.ID)
				}
				settle = append(settle, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
			}
			for i, r := range e.settle(settle...) {
				e.outcome("ack", r, store.Acked)
				done[leases[i].ID] = true
			}
		}
		e.counts(0, 0, 0, 0)
	}},
}
