package storetest

import (
	"time"

	"github.com/duetime/duetime/store"
)

// ahead is far enough for what a case does meanwhile, on a busy machine as well.
const ahead = store.MaxAhead

// claimAhead claims with a lease of a minute.
func (e *env) claimAhead(n int) store.ClaimResult {
	e.Helper()
	r := e.claimRequests(store.ClaimRequest{Queue: q, Max: n, Lease: time.Minute, Worker: "w", Ahead: ahead})[0]
	e.must(r.Err)
	return r
}

// aheadCases are about ClaimRequest.Ahead.
var aheadCases = []testCase{
	{"what is within reach is leased, from its due time on", 0, func(e *env) {
		e.needsAhead()
		due := e.now().Add(ahead / 2).Truncate(time.Millisecond)
		beyond := due.Add(time.Hour)
		e.create(store.NewTask{ID: "1", Due: due}, store.NewTask{ID: "0", Due: e.past()}, store.NewTask{ID: "far", Due: beyond})
		r := e.claimAhead(10)
		e.sameIDs("claim", ids(r.Tasks), []string{"0", "1"})
		l := r.Tasks[1]
		least, most := due.Add(time.Minute), l.ClaimedAt.Add(ahead+time.Minute+time.Millisecond)
		if !l.Due.Equal(due) || l.ClaimedAt.After(due) || l.LeaseUntil.Before(least) || l.LeaseUntil.After(most) {
			e.Errorf("due %v, claimed at %v, leased until %v; want due at %v and until %v to %v", l.Due, l.ClaimedAt, l.LeaseUntil, due, least, most)
		}
		e.nothing("it is leased")
		if e.caps.Get {
			e.state("1", store.StateLeased)
		}
		e.advanceTo(due)
		e.nothing("it is leased, and due")
		e.ack(l)
	}},
	{"released, it waits for its time again", 0, func(e *env) {
		e.needsAhead()
		due := e.now().Add(ahead / 2).Truncate(time.Millisecond)
		e.create(store.NewTask{ID: "1", Due: due})
		l := e.claimAhead(1).Tasks
		if len(l) != 1 {
			e.Fatalf("claim got %d tasks", len(l))
		}
		e.settled(store.Released, store.Settlement{Receipt: l[0].Receipt, Action: store.Release})
		e.nothing("it is not due")
		e.advanceTo(due)
		if again := e.lease("1"); again.Attempt() != 1 || again.Receipt == l[0].Receipt {
			e.Errorf("attempt %d, receipt %q after %q", again.Attempt(), again.Receipt, l[0].Receipt)
		}
	}},
	{"it is leased for whoever wants to cancel it, too", 0, func(e *env) {
		e.needsAhead()
		e.create(store.NewTask{ID: "1", Delay: ahead / 2})
		l := e.claimAhead(1).Tasks
		if len(l) != 1 {
			e.Fatalf("claim got %d tasks", len(l))
		}
		if e.caps.Cancel {
			e.cancel(store.Leased, "1", false)
		}
		e.ack(l[0])
		e.gone("1")
	}},
	{"no further than was said", 0, func(e *env) {
		e.needsAhead()
		due := e.now().Add(ahead + ahead/2).Truncate(time.Millisecond)
		e.create(store.NewTask{ID: "1", Due: due})
		if r := e.claimAhead(1); len(r.Tasks) > 0 && r.Tasks[0].ClaimedAt.Add(ahead).Before(due) || len(r.Tasks) == 0 && !r.Next.Equal(due) {
			e.Errorf("got %v, next %v; want the next to be the due time %v", ids(r.Tasks), r.Next, due)
		}
	}},
	{"nothing where the store does not do it", 0, func(e *env) {
		if e.caps.Ahead > 0 {
			e.Skip("it does")
		}
		e.create(store.NewTask{ID: "1", Delay: e.short(ahead / 2)})
		e.sameIDs("claim", ids(e.claimAhead(1).Tasks), nil)
	}},
	{"nothing at most once, and nothing of a paused queue", 0, func(e *env) {
		e.needsAhead()
		e.create(store.NewTask{ID: "1", Delay: e.maxWait})
		r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, AtMostOnce: true, Ahead: ahead})[0]
		e.must(r.Err)
		e.sameIDs("at most once", ids(r.Tasks), nil)
		if e.caps.Settings {
			e.create(store.NewTask{ID: "2", Delay: ahead / 2})
			e.set(func(s *store.Settings) { s.Paused = true })
			e.sameIDs("paused", ids(e.claimAhead(10).Tasks), nil)
		}
	}},
	{"a release setting holds back what is within reach", release | settings | fakeClock, func(e *env) {
		e.needsAhead()
		e.set(func(s *store.Settings) { s.Release = "every 5s" })
		base := e.nextMultiple(5 * time.Second)
		e.create(store.NewTask{ID: "1", Due: base.Add(-time.Second)})
		e.advanceTo(base.Add(-ahead / 2))
		e.sameIDs("half a second before the multiple", ids(e.claimAhead(10).Tasks), nil)
		e.advanceTo(base)
		e.lease("1")
	}},
	{"wrong values are refused", 0, func(e *env) {
		for _, d := range []time.Duration{-1, store.MaxAhead + 1} {
			r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, Lease: time.Minute, Ahead: d})[0]
			e.inputError("claim", r.Err, "ahead")
		}
	}},
}

func (e *env) needsAhead() {
	e.Helper()
	if e.caps.Ahead == 0 {
		e.Skip("the store does not claim ahead")
	}
}
