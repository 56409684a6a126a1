package storetest

import (
	"time"

	"github.com/duetime/duetime/store"
)

var nextCases = []testCase{
	{"zero where nothing is known", 0, func(e *env) {
		e.ready("1")
		e.ack(e.lease("1"))
		if r := e.claimResult(q, 1); !r.Next.IsZero() {
			e.Errorf("next is %v, now %v; the queue is empty", r.Next, r.Now)
		}
	}},
	{"the next due time", counted, func(e *env) {
		due := e.create(store.NewTask{ID: "1", Delay: 2 * time.Hour}, store.NewTask{ID: "2", Delay: time.Hour})[1].Due
		e.next(due)
	}},
	{"now where more is ready", 0, func(e *env) {
		e.ready("1", "2")
		if r := e.claimResult(q, 1); r.Next.IsZero() || r.Next.After(r.Now) {
			e.Errorf("next is %v, now %v; another is ready", r.Next, r.Now)
		}
	}},
	{"the end of a lease", 0, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.next(l.LeaseUntil)
	}},
	{"the end of a lease or the next due time, whichever is first", counted, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.create(store.NewTask{ID: "2", Delay: time.Hour})
		e.next(l.LeaseUntil)
		due := e.create(store.NewTask{ID: "3", Delay: time.Second})[0].Due
		e.next(due)
	}},
	{"the end of a lease as it was extended", 0, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		r := e.settled(store.Extended, store.Settlement{Receipt: l.Receipt, Action: store.Extend, Lease: time.Hour})
		e.next(r.At)
		e.ack(l)
		if r := e.claimResult(q, 1); !r.Next.IsZero() {
			e.Errorf("next is %v after the lease ended", r.Next)
		}
	}},
	{"not now while the queue is paused", settings, func(e *env) {
		e.ready("1")
		e.set(func(s *store.Settings) { s.Paused = true })
		if r := e.claimResult(q, 1); !r.Next.IsZero() && !r.Next.After(r.Now) {
			e.Errorf("next is %v, now %v: a sleeper would spin", r.Next, r.Now)
		}
	}},
	{"after a cancel", cancel, func(e *env) {
		r := e.create(store.NewTask{ID: "1", Delay: time.Hour}, store.NewTask{ID: "2", Delay: 2 * time.Hour})
		e.cancel(store.Cancelled, "1", false)
		// A store may keep in mind what was cancelled: one false awakening.
		if n := e.claimResult(q, 1).Next; !n.Equal(r[1].Due) && !n.Equal(r[0].Due) {
			e.Errorf("next is %v, want %v", n, r[1].Due)
		}
	}},
}

// next says what a claim that gets nothing must tell about the next one.
func (e *env) next(want time.Time) {
	e.Helper()
	r := e.claimResult(q, 10)
	if len(r.Tasks) != 0 {
		e.Fatalf("claim got %v, want nothing", ids(r.Tasks))
	}
	if !r.Next.Equal(want) {
		e.Errorf("next is %v, want %v", r.Next, want)
	}
}
