package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var settleCases = []testCase{
	{"ack removes the task", 0, func(e *env) {
		e.ready("1", "2")
		e.ack(e.lease("1"))
		e.gone("1")
		e.counts(0, 1, 0, 0)
		e.ack(e.lease("2"))
		e.nothing("both are done")
	}},
	{"every action but extend ends the lease", 0, func(e *env) {
		for i, a := range []store.Action{store.Ack, store.Retry, store.Snooze, store.Bury, store.Release} {
			id := fmt.Sprint(i)
			e.ready(id)
			l := e.lease(id)
			s := store.Settlement{Receipt: l.Receipt, Action: a}
			if a == store.Retry || a == store.Snooze {
				s.Delay = time.Hour
			}
			e.settle(s)
			e.stale(l, "after "+a.String())
			if a == store.Release {
				e.ack(e.lease(id))
			}
		}
		if e.caps.Uncounted {
			e.counts(0, 0, 0, 1)
		} else {
			e.counts(2, 0, 0, 1)
		}
	}},
	{"the same receipt twice in a batch: the second is stale", get, func(e *env) {
		e.ready("1", "2", "3")
		a, b, c := e.lease("1"), e.lease("2"), e.lease("3")
		r := e.settle(
			store.Settlement{Receipt: a.Receipt, Action: store.Ack},
			store.Settlement{Receipt: a.Receipt, Action: store.Ack},
			store.Settlement{Receipt: b.Receipt, Action: store.Retry, Delay: time.Hour},
			store.Settlement{Receipt: b.Receipt, Action: store.Retry, Delay: time.Hour},
			store.Settlement{Receipt: c.Receipt, Action: store.Extend, Lease: time.Hour},
			store.Settlement{Receipt: c.Receipt, Action: store.Bury},
			store.Settlement{Receipt: c.Receipt, Action: store.Extend, Lease: time.Hour},
		)
		for i, want := range []store.Outcome{store.Acked, store.Stale, store.Retrying, store.Stale, store.Extended, store.Dead, store.Stale} {
			e.outcome(fmt.Sprint("item ", i), r[i], want)
		}
		if t := e.task("2"); t.Failures != 1 {
			e.Errorf("retried once: %d failures", t.Failures)
		}
	}},
	{"a batch settles leases of several queues", 0, func(e *env) {
		past := e.past()
		e.create(store.NewTask{Queue: "a", ID: "1", Due: past}, store.NewTask{Queue: "b", ID: "1", Due: past})
		a, b := e.claimResult("a", 1).Tasks[0], e.claimResult("b", 1).Tasks[0]
		for _, r := range e.settle(store.Settlement{Receipt: b.Receipt, Action: store.Ack}, store.Settlement{Receipt: a.Receipt, Action: store.Ack}) {
			e.outcome("ack", r, store.Acked)
		}
		if e.stats("a") != (store.Stats{}) || e.stats("b") != (store.Stats{}) {
			e.Error("tasks are left")
		}
	}},
	{"snooze looks again later and counts nothing", get, func(e *env) {
		e.create(store.NewTask{ID: "1", Due: e.past(), Payload: []byte("p"), MaxAttempts: 1})
		for n := range 3 {
			l := e.lease("1")
			if l.Attempt() != 1 {
				e.Fatalf("attempt %d after %d snoozes, want 1", l.Attempt(), n)
			}
			before := e.now()
			r := e.settled(store.Snoozed, store.Settlement{Receipt: l.Receipt, Action: store.Snooze, Delay: e.short(200 * time.Millisecond)})
			e.between("due", r.Due, before, e.now(), e.short(200*time.Millisecond))
			want := l.Task
			want.State, want.Due, want.Worker, want.LeaseUntil = store.StateScheduled, r.Due, "", time.Time{}
			e.same("snoozed", e.task("1"), want)
			e.nothing("it snoozes")
			e.advanceTo(r.Due)
		}
		e.ack(e.lease("1"))
	}},
	{"bury makes it dead at once", get, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Bury, Error: "no such order"})
		want := l.Task
		want.State, want.LastError, want.Worker, want.LeaseUntil = store.StateDead, "no such order", "", time.Time{}
		e.same("buried", e.task("1"), want)
		e.nothing("it is dead")
		e.counts(0, 0, 0, 1)
	}},
	{"release brings it back at its old due time, nothing counted", get, func(e *env) {
		e.ready("1", "2")
		old := e.lease("1")
		before := old.Task
		e.settled(store.Released, store.Settlement{Receipt: old.Receipt, Action: store.Release})
		before.State, before.Worker, before.LeaseUntil = store.StateReady, "", time.Time{}
		e.same("released", e.task("1"), before)
		l := e.lease("1") // before 2: its place in the order is the old one
		if l.Attempt() != 1 || l.Receipt == old.Receipt {
			e.Errorf("attempt %d with receipt %q, want 1 and a new receipt", l.Attempt(), l.Receipt)
		}
		e.stale(old, "released and claimed again with the same attempt")
		e.ack(l)
	}},
	{"a receipt of a task that never was is stale", 0, func(e *env) {
		for _, p := range []store.ReceiptParts{
			{Queue: "absent", ID: "1", Attempt: 1, Token: 7},
			{Queue: q, ID: "absent", Attempt: 1, Token: 7},
		} {
			e.ready("x" + p.ID)
			e.settled(store.Stale, store.Settlement{Receipt: p.Encode(), Action: store.Ack})
		}
		queues, err := e.st.Queues(e.ctx)
		e.must(err)
		if len(queues) != 1 {
			e.Errorf("settling created a queue: %q", queues)
		}
	}},
	{"a receipt guessed from all that callers know is stale", 0, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		for token := range uint64(3) {
			e.settled(store.Stale, store.Settlement{Receipt: store.ReceiptParts{Queue: q, ID: "1", Attempt: 1, Token: token}.Encode(), Action: store.Ack})
		}
		e.ack(l)
	}},
}
