package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var identityCases = []testCase{
	{"exists changes nothing and brings the task that is there", unique | get, func(e *env) {
		later := e.now().Add(time.Hour).Truncate(time.Second)
		e.create(store.NewTask{ID: "1", Payload: []byte("first"), Headers: map[string]string{"h": "1"}, Due: later, MaxAttempts: 3})
		before := e.task("1")
		r := e.schedule(store.NewTask{Queue: q, ID: "1", Payload: []byte("second"), Delay: time.Minute})[0]
		e.outcome("schedule again", r, store.Exists)
		e.same("exists", *r.Task, before)
		e.same("get", e.task("1"), before)
		e.counts(1, 0, 0, 0)
	}},
	{"exists tells of a ready and of a leased task", unique, func(e *env) {
		e.ready("1")
		r := e.schedule(store.NewTask{Queue: q, ID: "1"})[0]
		e.outcome("schedule a ready one", r, store.Exists)
		if r.Task.State != store.StateReady {
			e.Errorf("exists: %v, want ready", r.Task.State)
		}
		l := e.lease("1")
		r = e.schedule(store.NewTask{Queue: q, ID: "1"})[0]
		e.outcome("schedule a leased one", r, store.Exists)
		if r.Task.State != store.StateLeased || r.Task.Worker != "w" || !r.Task.LeaseUntil.Equal(l.LeaseUntil) {
			e.Errorf("exists: %v with %q until %v, want leased with %q until %v", r.Task.State, r.Task.Worker, r.Task.LeaseUntil, "w", l.LeaseUntil)
		}
		e.ack(l)
	}},
	{"exists tells of a task that waits for its retry", unique, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Hour, Error: "boom"})
		r := e.schedule(store.NewTask{Queue: q, ID: "1"})[0]
		e.outcome("schedule", r, store.Exists)
		if r.Task.Failures != 1 || r.Task.LastError != "boom" {
			e.Errorf("exists: %d failures, error %q", r.Task.Failures, r.Task.LastError)
		}
	}},
	{"a producer may retry blindly", unique, func(e *env) {
		past := e.past()
		batch := make([]store.NewTask, 100)
		for i := range batch {
			batch[i] = store.NewTask{Queue: q, ID: fmt.Sprint(i), Due: past}
		}
		e.create(batch...)
		for range 3 {
			for _, r := range e.schedule(batch...) {
				e.outcome("schedule again", r, store.Exists)
			}
		}
		if got := e.claim(1000); len(got) != 100 {
			e.Errorf("100 tasks scheduled four times: claimed %d", len(got))
		}
		e.nothing("all are claimed")
	}},
	{"replace puts a new task in the place of the old", unique | get, func(e *env) {
		e.create(store.NewTask{ID: "1", Payload: []byte("old"), Headers: map[string]string{"old": "1"}, Due: e.past(), MaxAttempts: 5})
		for generation := 1; generation <= 3; generation++ {
			l := e.lease("1")
			e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Hour, Error: "boom"})
			e.advance(2 * time.Millisecond)
			before := e.now()
			n := store.NewTask{Queue: q, ID: "1", Payload: []byte(fmt.Sprint("new", generation)), Due: e.past(), Conflict: store.ConflictReplace}
			r := e.schedule(n)[0]
			e.outcome("replace", r, store.Replaced)
			e.between("created", r.At, before, e.now(), 0)
			e.same("replaced", e.task("1"), store.Task{
				Queue: q, ID: "1", State: store.StateReady, Payload: n.Payload, Due: n.Due, Created: r.At, Generation: generation,
			})
			e.counts(0, 1, 0, 0)
		}
	}},
	{"replace without an old task creates", unique, func(e *env) {
		r := e.schedule(store.NewTask{Queue: q, ID: "1", Conflict: store.ConflictReplace})[0]
		e.outcome("replace", r, store.Created)
	}},
	{"replace moves the due time both ways", unique, func(e *env) {
		e.ready("1")
		r := e.schedule(store.NewTask{Queue: q, ID: "1", Delay: time.Hour, Conflict: store.ConflictReplace})[0]
		e.outcome("replace by a later one", r, store.Replaced)
		e.nothing("it is due in an hour")
		r = e.schedule(store.NewTask{Queue: q, ID: "1", Due: e.past(), Conflict: store.ConflictReplace})[0]
		e.outcome("replace by an earlier one", r, store.Replaced)
		e.lease("1")
	}},
	{"replace of a leased task makes its receipt stale", unique, func(e *env) {
		e.ready("1")
		old := e.lease("1")
		r := e.schedule(store.NewTask{Queue: q, ID: "1", Due: e.past(), Payload: []byte("new"), Conflict: store.ConflictReplace})[0]
		e.outcome("replace", r, store.Replaced)
		e.counts(0, 1, 0, 0)
		e.stale(old, "replaced, not claimed again")
		l := e.lease("1")
		if string(l.Payload) != "new" || l.Attempt() != 1 || l.Generation != 1 {
			e.Errorf("claimed payload %q, attempt %d, generation %d; want the new one", l.Payload, l.Attempt(), l.Generation)
		}
		e.stale(old, "replaced and claimed again")
		e.ack(l)
		e.nothing("it is done")
	}},
	{"a dead task is no obstacle", unique | get, func(e *env) {
		for i, conflict := range []store.Conflict{store.ConflictKeep, store.ConflictReplace} {
			id := fmt.Sprint(i)
			e.die(id, "first life")
			r := e.schedule(store.NewTask{Queue: q, ID: id, Delay: time.Hour, Payload: []byte("second life"), Conflict: conflict})[0]
			e.outcome("schedule over a dead one", r, store.Created)
			e.same("second life", e.task(id), store.Task{
				Queue: q, ID: id, State: store.StateScheduled, Payload: []byte("second life"), Due: r.Due, Created: r.At,
			})
		}
		e.counts(2, 0, 0, 0)
	}},
	{"an id is free again after an ack", unique, func(e *env) {
		for range 3 {
			e.ready("1")
			old := e.lease("1")
			e.ack(old)
			e.stale(old, "acked")
		}
		e.ready("1")
		l := e.lease("1")
		if l.Attempt() != 1 || l.Generation != 0 {
			e.Errorf("attempt %d, generation %d, want a task that is new", l.Attempt(), l.Generation)
		}
	}},
	{"an id is free again after a cancel", unique | cancel, func(e *env) {
		for range 3 {
			e.ready("1")
			e.cancel(store.Cancelled, "1", false)
		}
		e.ready("1")
		e.ack(e.lease("1"))
		e.nothing("one of four was left")
	}},
	{"an id is free again after a claim at most once", unique, func(e *env) {
		for range 2 {
			e.ready("1")
			r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, AtMostOnce: true})[0]
			e.sameIDs("claim", ids(r.Tasks), []string{"1"})
		}
	}},
	{"the same id twice in a batch: the second sees the first", unique | get, func(e *env) {
		r := e.schedule(
			store.NewTask{Queue: q, ID: "1", Payload: []byte("a"), Delay: time.Hour},
			store.NewTask{Queue: q, ID: "1", Payload: []byte("b"), Delay: time.Minute},
			store.NewTask{Queue: q, ID: "1", Payload: []byte("c"), Delay: 2 * time.Hour, Conflict: store.ConflictReplace},
			store.NewTask{Queue: q, ID: "1", Payload: []byte("d"), Delay: time.Minute},
			store.NewTask{Queue: q, ID: "1", Payload: []byte("e"), Delay: 3 * time.Hour, Conflict: store.ConflictReplace},
		)
		for i, want := range []store.Outcome{store.Created, store.Exists, store.Replaced, store.Exists, store.Replaced} {
			e.outcome(fmt.Sprint("item ", i), r[i], want)
		}
		if string(r[1].Task.Payload) != "a" || string(r[3].Task.Payload) != "c" {
			e.Errorf("exists brought %q and %q, want a and c", r[1].Task.Payload, r[3].Task.Payload)
		}
		if t := e.task("1"); string(t.Payload) != "e" || t.Generation != 2 || !t.Due.Equal(r[4].Due) {
			e.Errorf("payload %q, generation %d, due %v; want those of the last", t.Payload, t.Generation, t.Due)
		}
		e.counts(1, 0, 0, 0)
	}},
	{"equal ids in different queues are different tasks", unique | get | cancel, func(e *env) {
		past := e.past()
		queues := []string{"a", "b", "a:b", "A"}
		for _, name := range queues {
			e.create(store.NewTask{Queue: name, ID: "1", Payload: []byte(name), Due: past})
		}
		l := e.claimResult("a", 10).Tasks
		e.sameIDs("claim", ids(l), []string{"1"})
		r, err := e.st.Cancel(e.ctx, []store.CancelRequest{{Queue: "b", ID: "1"}})
		e.must(err)
		e.outcome("cancel", r[0], store.Cancelled)
		for _, name := range []string{"a:b", "A"} {
			if t := e.lookup(name, "1"); t == nil || t.State != store.StateReady || string(t.Payload) != name {
				e.Errorf("task of queue %q: %+v", name, t)
			}
		}
		e.ack(l[0])
		if e.lookup("a", "1") != nil || e.lookup("b", "1") != nil {
			e.Error("a task that was acked or cancelled is still there")
		}
	}},
}
