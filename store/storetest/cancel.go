package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var cancelCases = []testCase{
	{"in each state says what happened", cancel, func(e *env) {
		e.cancel(store.NotFound, "unknown", false)
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		e.cancel(store.Cancelled, "1", false)
		e.cancel(store.NotFound, "1", false)
		e.ready("1")
		e.cancel(store.Cancelled, "1", false)
		e.ready("1")
		l := e.lease("1")
		e.cancel(store.Leased, "1", false)
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Hour})
		e.cancel(store.Cancelled, "1", false)
		e.ready("1")
		e.ack(e.lease("1"))
		e.cancel(store.NotFound, "1", false)
		e.counts(0, 0, 0, 0)
		e.nothing("all were cancelled or done")
	}},
	{"leased changes nothing", cancel | get, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.cancel(store.Leased, "1", false)
		e.same("after a refused cancel", e.task("1"), l.Task)
		e.ack(l)
	}},
	{"cancelled is never handed out, also later", cancel, func(e *env) {
		r := e.create(store.NewTask{ID: "1", Delay: e.short(200 * time.Millisecond)}, store.NewTask{ID: "2", Delay: e.short(200 * time.Millisecond)})
		e.nothing("they are not due") // a store that plans ahead has them in mind now
		e.cancel(store.Cancelled, "1", false)
		e.advanceTo(r[1].Due)
		e.sameIDs("claim", ids(e.claim(10)), []string{"2"})
	}},
	{"of a dead one: a redrive does not bring it back", cancel | redrive, func(e *env) {
		e.die("1", "boom")
		e.die("2", "boom")
		e.cancel(store.Cancelled, "1", false)
		n, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true})
		e.must(err)
		if n != 1 {
			e.Errorf("redrive moved %d tasks, want 1", n)
		}
		e.advance(time.Millisecond)
		e.sameIDs("claim", ids(e.claim(10)), []string{"2"})
	}},
	{"with force revokes a lease", cancel, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.cancel(store.Cancelled, "1", true)
		e.gone("1")
		e.stale(l, "cancelled by force")
		e.counts(0, 0, 0, 0)
		e.nothing("it is cancelled")
		e.cancel(store.NotFound, "1", true)
	}},
	{"with force: a lease that would have run out brings nothing back", cancel, func(e *env) {
		e.ready("1")
		l := e.leaseFor("1", e.short(100*time.Millisecond))
		e.cancel(store.Cancelled, "1", true)
		e.advanceTo(l.LeaseUntil.Add(time.Millisecond))
		e.nothing("it is cancelled")
		e.counts(0, 0, 0, 0)
	}},
	{"with force, then a task of the same id: the old receipt is stale", cancel, func(e *env) {
		e.ready("1")
		old := e.lease("1")
		e.cancel(store.Cancelled, "1", true)
		e.ready("1")
		e.stale(old, "scheduled anew")
		l := e.lease("1")
		e.stale(old, "claimed anew, with the same generation and attempt")
		e.ack(l)
	}},
	{"a lease that ran out is no obstacle", cancel, func(e *env) {
		e.ready("1")
		l := e.leaseFor("1", e.short(100*time.Millisecond))
		e.advanceTo(l.LeaseUntil)
		e.cancel(store.Cancelled, "1", false)
		e.stale(l, "cancelled")
		e.nothing("it is cancelled")
	}},
	{"twice in a batch: the second finds nothing", cancel, func(e *env) {
		e.ready("1", "2")
		l := e.lease("1")
		r, err := e.st.Cancel(e.ctx, []store.CancelRequest{
			{Queue: q, ID: "2"}, {Queue: q, ID: "2"}, {Queue: q, ID: "1"}, {Queue: q, ID: "1", Force: true}, {Queue: q, ID: "1"}, {Queue: "", ID: "2"},
		})
		e.must(err)
		for i, want := range []store.Outcome{store.Cancelled, store.NotFound, store.Leased, store.Cancelled, store.NotFound, store.Refused} {
			e.outcome(fmt.Sprint("item ", i), r[i], want)
		}
		e.stale(l, "cancelled")
	}},
	{"ten thousand of next year", cancel, func(e *env) {
		tasks := make([]store.NewTask, store.MaxBatch)
		cancels := make([]store.CancelRequest, len(tasks))
		for i := range tasks {
			id := fmt.Sprint(i)
			tasks[i] = store.NewTask{Queue: q, ID: id, Delay: 365*24*time.Hour + time.Duration(i)*time.Second}
			cancels[i] = store.CancelRequest{Queue: q, ID: id}
		}
		e.create(tasks...)
		r, err := e.st.Cancel(e.ctx, cancels)
		e.must(err)
		for i := range r {
			e.outcome(cancels[i].ID, r[i], store.Cancelled)
		}
		e.counts(0, 0, 0, 0)
		if s := e.stats(q); !s.NextDue.IsZero() {
			e.Errorf("next due %v, all are cancelled", s.NextDue)
		}
	}},
}
