package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var orderCases = []testCase{
	{"oldest due first, whatever the order of scheduling", ordered, func(e *env) {
		past := e.past()
		for _, i := range []int{5, 2, 9, 0, 7, 1, 8, 3, 6, 4} {
			e.create(store.NewTask{ID: fmt.Sprint(i), Due: past.Add(time.Duration(i) * time.Millisecond)})
		}
		e.sameIDs("claim", ids(e.claim(3)), []string{"0", "1", "2"})
		e.sameIDs("claim", ids(e.claim(10)), []string{"3", "4", "5", "6", "7", "8", "9"})
	}},
	{"then oldest scheduled, across and within batches", ordered, func(e *env) {
		past := e.past()
		e.create(store.NewTask{ID: "z", Due: past}, store.NewTask{ID: "b", Due: past})
		e.create(store.NewTask{ID: "y", Due: past})
		e.create(store.NewTask{ID: "a", Due: past}, store.NewTask{ID: "10", Due: past}, store.NewTask{ID: "9", Due: past})
		e.sameIDs("claim", ids(e.claim(10)), []string{"z", "b", "y", "a", "10", "9"})
	}},
	{"reschedule, retry, snooze, release and a lost lease keep the place in scheduling order", reschedule, func(e *env) {
		past := e.past()
		for _, id := range []string{"moved", "retried", "snoozed", "released", "lost"} {
			e.create(store.NewTask{ID: id, Due: past})
		}
		e.move(store.Rescheduled, "moved", past.Add(-time.Second))
		e.move(store.Rescheduled, "moved", past)
		for _, l := range e.claimRequests(store.ClaimRequest{Queue: q, Max: 5, Lease: e.short(300 * time.Millisecond)})[0].Tasks {
			switch l.ID {
			case "moved", "released":
				e.settled(store.Released, store.Settlement{Receipt: l.Receipt, Action: store.Release})
			case "retried":
				e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Minute})
				e.move(store.Rescheduled, l.ID, past)
			case "snoozed":
				e.settled(store.Snoozed, store.Settlement{Receipt: l.Receipt, Action: store.Snooze, Delay: time.Minute})
				e.move(store.Rescheduled, l.ID, past)
			case "lost":
				e.advanceTo(l.LeaseUntil)
			}
		}
		e.create(store.NewTask{ID: "last", Due: past})
		e.sameIDs("claim", ids(e.claim(10)), []string{"moved", "retried", "snoozed", "released", "lost", "last"})
	}},
	{"replace takes a new place", unique, func(e *env) {
		past := e.past()
		e.create(store.NewTask{ID: "1", Due: past}, store.NewTask{ID: "2", Due: past})
		r := e.schedule(store.NewTask{Queue: q, ID: "1", Due: past, Conflict: store.ConflictReplace})[0]
		e.outcome("replace", r, store.Replaced)
		e.create(store.NewTask{ID: "3", Due: past})
		e.sameIDs("claim", ids(e.claim(10)), []string{"2", "1", "3"})
	}},
	{"a retried task takes its turn among many", ordered, func(e *env) {
		e.ready("old")
		l := e.lease("old")
		r := e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: e.short(50 * time.Millisecond)})
		e.advanceTo(r.Due.Add(10 * time.Millisecond))
		var tasks []store.NewTask
		for i := range 1000 {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprint(i), Due: r.Due.Add(time.Duration(i%9+1) * time.Millisecond)})
		}
		e.create(tasks...)
		e.lease("old")
	}},
	{"an overdue backlog goes before what comes due, and both go out", ordered, func(e *env) {
		past := e.past()
		for round := range 20 {
			var tasks []store.NewTask
			for i := range 20 {
				tasks = append(tasks, store.NewTask{ID: fmt.Sprintf("new/%d/%d", round, i)})
				if round == 0 {
					tasks = append(tasks, store.NewTask{ID: fmt.Sprintf("old/%02d", i), Due: past.Add(time.Duration(i) * time.Second)})
				}
			}
			e.create(tasks...)
			e.advance(time.Millisecond)
			e.lease(fmt.Sprintf("old/%02d", round))
		}
		if got := e.claim(1000); len(got) != 400 {
			e.Errorf("%d tasks are left, want 400", len(got))
		}
	}},
	{"a full queue does not delay another", 0, func(e *env) {
		past := e.past()
		var tasks []store.NewTask
		for i := range 10_000 {
			tasks = append(tasks, store.NewTask{Queue: "full", ID: fmt.Sprint(i), Due: past})
		}
		e.create(tasks...)
		r := e.create(store.NewTask{ID: "1", Delay: e.short(100 * time.Millisecond)})[0]
		e.advanceTo(r.Due)
		e.lease("1")
	}},
}
