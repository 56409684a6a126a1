package storetest

import (
	"time"

	"github.com/duetime/duetime/store"
)

// Correctness never depends on ticks, and under load they may be lost. But a store
// that has no reason to lose one must tick, or its users would wait for their
// fallback poll each time.
var wakeCases = []testCase{
	{"ticks when something may be claimed earlier than was said", reschedule | settings, func(e *env) {
		ticks, stop := e.st.Wake(q)
		defer stop()
		ticked := func(what string) {
			e.Helper()
			select {
			case <-ticks:
			case <-time.After(3 * time.Second):
				e.Fatalf("no tick within 3 s: %s", what)
			}
			for {
				select {
				case <-ticks:
					continue
				case <-time.After(10 * time.Millisecond):
				}
				return
			}
		}
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		ticked("a task for an empty queue")
		e.create(store.NewTask{ID: "2", Delay: time.Minute})
		ticked("a task that is due earlier")
		e.move(store.Rescheduled, "1", e.past())
		ticked("a task moved to now")
		l := e.lease("1")
		e.settled(store.Released, store.Settlement{Receipt: l.Receipt, Action: store.Release})
		ticked("a task released")
		l = e.lease("1")
		e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Bury})
		if e.caps.Redrive {
			_, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true})
			e.must(err)
			ticked("a task redriven")
		}
		e.set(func(s *store.Settings) { s.Paused = true })
		e.set(func(s *store.Settings) { s.Paused = false })
		ticked("claiming resumed")
	}},
	{"each waiter has a channel of its own, and stop is for good", 0, func(e *env) {
		a, stopA := e.st.Wake(q)
		b, stopB := e.st.Wake(q)
		stopA()
		stopA() // harmless
		e.create(store.NewTask{ID: "1"})
		select {
		case _, open := <-b:
			if !open {
				e.Error("the channel was closed")
			}
		case <-time.After(3 * time.Second):
			e.Error("no tick within 3 s for the second of two")
		}
		stopB()
		select {
		case _, open := <-a:
			if !open {
				e.Error("stop closed the channel")
			}
		default:
		}
	}},
	{"nobody who listens holds up the store", 0, func(e *env) {
		for range 100 {
			_, stop := e.st.Wake(q) // never read
			defer stop()
		}
		for i := range 200 {
			e.create(store.NewTask{ID: time.Duration(i).String(), Due: e.past().Add(-time.Duration(i) * time.Second)})
		}
	}},
	{"waiting for a queue creates none", 0, func(e *env) {
		_, stop := e.st.Wake("absent")
		defer stop()
		_, stop2 := e.st.Wake("no queue's name/")
		defer stop2()
		queues, err := e.st.Queues(e.ctx)
		e.must(err)
		if len(queues) != 0 {
			e.Errorf("queues %q", queues)
		}
	}},
}
