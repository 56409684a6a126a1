package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var deadCases = []testCase{
	{"redrive by id: counters are back at nothing, due now, the reason kept", redrive | get, func(e *env) {
		e.create(store.NewTask{ID: "1", Due: e.past(), Payload: []byte("p"), Headers: map[string]string{"a": "b"}, MaxAttempts: 2})
		e.fails("1", 2)
		e.die("2", "boom")
		before := e.task("1")
		at := e.now()
		n, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, IDs: []string{"1", "1", "absent"}})
		e.must(err)
		if n != 1 {
			e.Errorf("redrive moved %d, want 1", n)
		}
		got := e.task("1")
		e.dueNow("due", got.Due, at, e.now())
		before.State, before.Failures, before.Lost, before.Due = got.State, 0, 0, got.Due
		e.same("redriven", got, before)
		if got.LastError != "failure 2" {
			e.Errorf("last error %q, want it kept", got.LastError)
		}
		e.state("2", store.StateDead)
		e.advance(time.Millisecond)
		l := e.lease("1")
		if l.Attempt() != 1 {
			e.Errorf("attempt %d, want 1", l.Attempt())
		}
		e.ack(l)
	}},
	{"redrive of all, also of thousands", redrive, func(e *env) {
		n := e.manyDead(3000)
		moved, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true})
		e.must(err)
		if moved != n {
			e.Errorf("redrive moved %d of %d", moved, n)
		}
		e.advance(time.Millisecond)
		e.counts(0, int64(n), 0, 0)
		// Scheduled in the order in which they were due, they come back in it.
		for i, l := range e.claim(n) {
			if l.ID != fmt.Sprintf("%04d", i) {
				e.Fatalf("number %d is %q", i, l.ID)
			}
		}
	}},
	{"redrive leaves live tasks and other queues alone", redrive | get, func(e *env) {
		e.create(store.NewTask{ID: "s", Delay: time.Hour})
		e.ready("l")
		l := e.lease("l")
		e.create(store.NewTask{Queue: "other", ID: "d", Due: e.past()})
		o := e.claimResult("other", 1).Tasks[0]
		e.settled(store.Dead, store.Settlement{Receipt: o.Receipt, Action: store.Bury})
		before := e.task("s")
		for _, r := range []store.RedriveRequest{{Queue: q, All: true}, {Queue: q, IDs: []string{"s", "l", "d"}}, {Queue: "absent", All: true}} {
			n, err := e.st.Redrive(e.ctx, r)
			if err != nil || n != 0 {
				e.Errorf("redrive %+v: %d, %v", r, n, err)
			}
		}
		e.same("scheduled", e.task("s"), before)
		e.ack(l)
		if s := e.stats("other"); s.Dead != 1 {
			e.Errorf("the other queue has %d dead, want 1", s.Dead)
		}
	}},
	{"a redriven poison task dies again", redrive | settings, func(e *env) {
		e.set(func(s *store.Settings) { s.MaxLost = 1 })
		e.ready("1")
		for range 3 {
			l := e.leaseFor("1", e.short(50*time.Millisecond))
			e.advanceTo(l.LeaseUntil)
			e.counts(0, 0, 0, 1)
			n, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true})
			if err != nil || n != 1 {
				e.Fatalf("redrive: %d, %v", n, err)
			}
			e.advance(time.Millisecond)
		}
	}},
	{"purge removes one state and no other", purge, func(e *env) {
		for _, state := range store.States() {
			queue := "q-" + state.String()
			past := e.past()
			e.create(store.NewTask{Queue: queue, ID: "dead", Due: past}, store.NewTask{Queue: queue, ID: "leased", Due: past.Add(1e6)})
			l := e.claimResult(queue, 2).Tasks
			if len(l) != 2 {
				e.Fatalf("claimed %d, want 2", len(l))
			}
			e.settled(store.Dead, store.Settlement{Receipt: l[0].Receipt, Action: store.Bury})
			e.create(
				store.NewTask{Queue: queue, ID: "r1", Due: past}, store.NewTask{Queue: queue, ID: "r2", Due: past},
				store.NewTask{Queue: queue, ID: "s", Delay: time.Hour},
			)
			want := map[store.State]int{store.StateScheduled: 1, store.StateReady: 2, store.StateLeased: 1, store.StateDead: 1}[state]
			n, err := e.st.Purge(e.ctx, queue, state)
			if err != nil || n != want {
				e.Errorf("purge of %v tasks: %d, %v; want %d", state, n, err, want)
			}
			s := e.stats(queue)
			if total := s.Scheduled + s.Ready + s.Leased + s.Dead; total != int64(5-want) {
				e.Errorf("after a purge of %d %v tasks %d of 5 are left", want, state, total)
			}
			if state == store.StateLeased {
				e.stale(l[1], "purged")
			} else {
				e.ack(l[1])
			}
			if n, err := e.st.Purge(e.ctx, queue, state); err != nil || n != 0 && state != store.StateLeased {
				e.Errorf("purge again: %d, %v", n, err)
			}
		}
		if n, err := e.st.Purge(e.ctx, "absent", store.StateReady); err != nil || n != 0 {
			e.Errorf("purge of an absent queue: %d, %v", n, err)
		}
	}},
	{"purge of thousands", purge, func(e *env) {
		n := e.manyDead(3000)
		e.create(store.NewTask{ID: "live", Delay: time.Hour})
		purged, err := e.st.Purge(e.ctx, q, store.StateDead)
		if err != nil || purged != n {
			e.Errorf("purged %d of %d, %v", purged, n, err)
		}
		e.counts(1, 0, 0, 0)
	}},
	{"purge of dead tasks works everywhere", 0, func(e *env) {
		e.die("1", "boom")
		n, err := e.st.Purge(e.ctx, q, store.StateDead)
		if err != nil || n != 1 {
			e.Errorf("purged %d, %v; want 1", n, err)
		}
		e.counts(0, 0, 0, 0)
	}},
}

// manyDead makes dead tasks, due a millisecond apart.
func (e *env) manyDead(n int) int {
	e.Helper()
	past := e.past()
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: fmt.Sprintf("%04d", i), Due: past.Add(time.Duration(i) * time.Millisecond)}
	}
	e.create(tasks...)
	var settle []store.Settlement
	for _, l := range e.claim(n) {
		settle = append(settle, store.Settlement{Receipt: l.Receipt, Action: store.Bury, Error: "boom"})
	}
	for _, r := range e.settle(settle...) {
		e.outcome("bury", r, store.Dead)
	}
	e.counts(0, 0, 0, int64(n))
	return n
}
