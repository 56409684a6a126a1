package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var rescheduleCases = []testCase{
	{"to earlier and to later", reschedule | get, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour, Payload: []byte("p"), MaxAttempts: 3})
		before := e.task("1")
		for _, due := range []time.Time{
			e.now().Add(2 * time.Hour).Truncate(time.Second), e.now().Add(time.Minute).Truncate(time.Second), e.past(),
		} {
			if r := e.move(store.Rescheduled, "1", due); !r.Due.Equal(due) {
				e.Errorf("rescheduled to %v, want %v", r.Due, due)
			}
			want := before
			want.Due = due
			if !due.After(e.now()) {
				want.State = store.StateReady
			}
			e.same("rescheduled", e.task("1"), want)
		}
		e.lease("1")
	}},
	{"a ready one waits again", reschedule, func(e *env) {
		e.ready("1")
		due := e.now().Add(e.short(300 * time.Millisecond))
		due = e.move(store.Rescheduled, "1", due).Due
		e.nothing("it was moved")
		e.counts(1, 0, 0, 0)
		e.advanceTo(due)
		e.lease("1")
	}},
	{"a delay counts from the store's clock", reschedule, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		before := e.now()
		r, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{{Queue: q, ID: "1", Delay: 90 * time.Second}})
		e.must(err)
		e.outcome("reschedule", r[0], store.Rescheduled)
		e.between("due", r[0].Due, before, e.now(), 90*time.Second)
	}},
	{"to nothing given means now", reschedule, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		r, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{{Queue: q, ID: "1"}})
		e.must(err)
		e.outcome("reschedule", r[0], store.Rescheduled)
		e.advance(time.Millisecond)
		e.lease("1")
	}},
	{"of a leased, a dead or an unknown one changes nothing", reschedule | get, func(e *env) {
		due := e.now().Add(time.Hour)
		e.move(store.NotFound, "unknown", due)
		e.gone("unknown")
		e.die("1", "boom")
		before := e.task("1")
		e.move(store.NotFound, "1", due)
		e.same("dead", e.task("1"), before)
		e.ready("2")
		l := e.lease("2")
		e.move(store.Leased, "2", due)
		e.same("leased", e.task("2"), l.Task)
		e.ack(l)
	}},
	{"one whose lease ran out", reschedule, func(e *env) {
		e.ready("1")
		l := e.leaseFor("1", e.short(100*time.Millisecond))
		e.advanceTo(l.LeaseUntil)
		e.move(store.Rescheduled, "1", e.now().Add(time.Hour))
		e.stale(l, "rescheduled")
		e.nothing("it was moved")
	}},
	{"keeps failures and the reason", reschedule | get, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Hour, Error: "boom"})
		e.move(store.Rescheduled, "1", e.past())
		l = e.lease("1")
		if l.Failures != 1 || l.LastError != "boom" || l.Generation != 0 {
			e.Errorf("failures %d, error %q, generation %d; want 1, boom, 0", l.Failures, l.LastError, l.Generation)
		}
	}},
	{"twice in a batch: the last one counts", reschedule, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		r, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{
			{Queue: q, ID: "1", Due: e.past()}, {Queue: q, ID: "1", Delay: time.Minute}, {Queue: q, ID: "none"},
		})
		e.must(err)
		for i, want := range []store.Outcome{store.Rescheduled, store.Rescheduled, store.NotFound} {
			e.outcome(fmt.Sprint("item ", i), r[i], want)
		}
		e.next(r[1].Due)
	}},
	{"finer than a millisecond is rounded up", reschedule, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		due := e.now().Add(time.Minute).Truncate(time.Second)
		if r := e.move(store.Rescheduled, "1", due.Add(1)); !r.Due.Equal(due.Add(time.Millisecond)) {
			e.Errorf("due %v, want a millisecond after %v", r.Due, due)
		}
	}},
}
