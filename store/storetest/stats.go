package storetest

import (
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

var statsCases = []testCase{
	{"a queue that does not exist has zeros", 0, func(e *env) {
		if s := e.stats("absent"); s != (store.Stats{}) {
			e.Errorf("%+v", s)
		}
		queues, err := e.st.Queues(e.ctx)
		e.must(err)
		if len(queues) != 0 {
			e.Errorf("asking created queues %q", queues)
		}
	}},
	{"count through a whole life", counted, func(e *env) {
		due := e.create(store.NewTask{ID: "1", Delay: e.short(200 * time.Millisecond)}, store.NewTask{ID: "2", Delay: time.Hour})
		e.counts(2, 0, 0, 0)
		e.advanceTo(due[0].Due)
		e.counts(1, 1, 0, 0)
		l := e.leaseFor("1", e.short(100*time.Millisecond))
		e.counts(1, 0, 1, 0)
		e.advanceTo(l.LeaseUntil)
		e.counts(1, 1, 0, 0)
		l = e.lease("1")
		e.settled(store.Released, store.Settlement{Receipt: l.Receipt, Action: store.Release})
		e.counts(1, 1, 0, 0)
		l = e.lease("1")
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: e.short(100 * time.Millisecond)})
		e.counts(2, 0, 0, 0)
		e.advance(e.short(100*time.Millisecond) + 2*time.Millisecond)
		l = e.lease("1")
		e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Bury})
		e.counts(1, 0, 0, 1)
	}},
	{"oldest due is of the ready, next due of the scheduled", counted, func(e *env) {
		past := e.past()
		due := e.create(store.NewTask{ID: "s2", Delay: 2 * time.Hour}, store.NewTask{ID: "s1", Delay: time.Hour})
		if s := e.stats(q); !s.OldestDue.IsZero() || !s.NextDue.Equal(due[1].Due) {
			e.Errorf("oldest due %v, next due %v; want none and %v", s.OldestDue, s.NextDue, due[1].Due)
		}
		e.create(store.NewTask{ID: "r2", Due: past.Add(time.Second)}, store.NewTask{ID: "r1", Due: past})
		if s := e.stats(q); !s.OldestDue.Equal(past) || !s.NextDue.Equal(due[1].Due) {
			e.Errorf("oldest due %v, next due %v; want %v and %v", s.OldestDue, s.NextDue, past, due[1].Due)
		}
		e.lease("r1")
		if s := e.stats(q); !s.OldestDue.Equal(past.Add(time.Second)) {
			e.Errorf("oldest due %v, want that of the task that is not leased, %v", s.OldestDue, past.Add(time.Second))
		}
	}},
	{"a replaced, a refused and an existing task are counted once", unique, func(e *env) {
		past := e.past()
		e.schedule(
			store.NewTask{Queue: q, ID: "1", Delay: time.Hour},
			store.NewTask{Queue: q, ID: "1", Delay: time.Hour},
			store.NewTask{Queue: q, ID: "1", Due: past, Conflict: store.ConflictReplace},
			store.NewTask{Queue: q, ID: "1", Delay: -1},
		)
		e.counts(0, 1, 0, 0)
		e.lease("1")
		e.schedule(store.NewTask{Queue: q, ID: "1", Delay: time.Hour, Conflict: store.ConflictReplace})
		e.counts(1, 0, 0, 0)
	}},
	{"queues are those that were used, in byte order", settings, func(e *env) {
		for _, name := range []string{"b", "a:b", "a", "B", "10", "9", "a.b"} {
			e.create(store.NewTask{Queue: name, ID: "1", Due: e.past()})
		}
		s, err := e.st.Settings(e.ctx, "settings")
		e.must(err)
		_, err = e.st.PutSettings(e.ctx, "settings", s)
		e.must(err)
		_, err = e.st.Settings(e.ctx, "read-only")
		e.must(err)
		for _, l := range e.claimResult("b", 1).Tasks {
			e.ack(l) // an empty queue is still one
		}
		got, err := e.st.Queues(e.ctx)
		e.must(err)
		if want := []string{"10", "9", "B", "a", "a.b", "a:b", "b", "settings"}; !slices.Equal(got, want) {
			e.Errorf("queues %q, want %q", got, want)
		}
	}},
}
