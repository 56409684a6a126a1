package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime/store"
)

// together runs n functions at once, and waits for them. They must not end the
// test: they report by Errorf.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

var concurrencyCases = []testCase{
	{"sixteen claimers get each of a thousand once", 0, func(e *env) {
		past := e.past()
		var tasks []store.NewTask
		for i := range 1000 {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprint(i), Due: past})
		}
		e.create(tasks...)
		var mu sync.Mutex
		got := make(map[string]int)
		together(16, func(i int) {
			for {
				r, err := e.st.Claim(e.ctx, []store.ClaimRequest{{Queue: q, Max: 50, Lease: time.Hour, Worker: fmt.Sprint(i)}})
				if err != nil {
					e.Errorf("claim: %v", err)
					return
				}
				if len(r[0].Tasks) == 0 {
					return
				}
				mu.Lock()
				for _, l := range r[0].Tasks {
					got[l.ID]++
				}
				mu.Unlock()
			}
		})
		for _, t := range tasks {
			if got[t.ID] != 1 {
				e.Errorf("task %s was claimed %d times", t.ID, got[t.ID])
			}
		}
	}},
	{"of eight who schedule one id, one creates it", unique, func(e *env) {
		for round := range 50 {
			id := fmt.Sprint(round)
			var created, exists atomic.Int32
			var payload atomic.Value
			together(8, func(i int) {
				p := fmt.Sprint(i)
				r, err := e.st.Schedule(e.ctx, []store.NewTask{{Queue: q, ID: id, Payload: []byte(p), Due: store.MinTime}})
				switch {
				case err != nil:
					e.Errorf("schedule: %v", err)
				case r[0].Outcome == store.Created:
					created.Add(1)
					payload.Store(p)
				case r[0].Outcome == store.Exists:
					exists.Add(1)
				}
			})
			if created.Load() != 1 || exists.Load() != 7 {
				e.Fatalf("round %d: %d created, %d exist; want 1 and 7", round, created.Load(), exists.Load())
			}
			l := e.lease(id)
			if string(l.Payload) != payload.Load() {
				e.Fatalf("round %d: payload %q, want that of who created it, %q", round, l.Payload, payload.Load())
			}
			e.ack(l)
		}
	}},
	{"of eight who replace one id, each does, one after the other", unique | get, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		together(8, func(i int) {
			for range 25 {
				r, err := e.st.Schedule(e.ctx, []store.NewTask{{Queue: q, ID: "1", Delay: time.Hour, Conflict: store.ConflictReplace}})
				if err != nil || r[0].Outcome != store.Replaced {
					e.Errorf("replace: %v, %v", r, err)
				}
			}
		})
		if t := e.task("1"); t.Generation != 200 {
			e.Errorf("replaced 200 times: generation %d", t.Generation)
		}
	}},
	{"of those who settle one lease, one does", 0, func(e *env) {
		actions := []store.Action{store.Ack, store.Retry, store.Bury, store.Release, store.Snooze, store.Ack}
		for round := range 50 {
			id := fmt.Sprint(round)
			e.create(store.NewTask{ID: id, Due: e.past()})
			l := e.lease(id)
			var done atomic.Int32
			together(len(actions), func(i int) {
				s := store.Settlement{Receipt: l.Receipt, Action: actions[i]}
				if s.Action == store.Retry || s.Action == store.Snooze {
					s.Delay = time.Hour
				}
				r, err := e.st.Settle(e.ctx, []store.Settlement{s})
				if err != nil {
					e.Errorf("settle: %v", err)
				} else if r[0].Outcome != store.Stale {
					done.Add(1)
				}
			})
			if done.Load() != 1 {
				e.Fatalf("round %d: %d settlements of one lease took effect", round, done.Load())
			}
			for _, l := range e.claim(1) { // released
				e.ack(l)
			}
		}
	}},
	{"cancel racing claim: cancelled means never, leased means it runs", cancel, func(e *env) {
		const n = 1000
		var tasks []store.NewTask
		past := e.past()
		for i := range n {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprint(i), Due: past})
		}
		e.create(tasks...)
		var cancelled, leased, claimed [n]bool
		together(4, func(worker int) {
			if worker < 2 {
				for {
					r, err := e.st.Claim(e.ctx, []store.ClaimRequest{{Queue: q, Max: 3, Lease: time.Hour}})
					if err != nil || len(r[0].Tasks) == 0 {
						if err != nil {
							e.Errorf("claim: %v", err)
						}
						return
					}
					for _, l := range r[0].Tasks {
						var i int
						fmt.Sscan(l.ID, &i)
						claimed[i] = true // each task is claimed by one claimer at most
					}
				}
			}
			for i := n - 1; i >= 0; i-- { // from the other end, so that they meet
				if i%2 != worker%2 {
					continue
				}
				r, err := e.st.Cancel(e.ctx, []store.CancelRequest{{Queue: q, ID: fmt.Sprint(i)}})
				if err != nil {
					e.Errorf("cancel: %v", err)
					return
				}
				cancelled[i] = r[0].Outcome == store.Cancelled
				leased[i] = r[0].Outcome == store.Leased
			}
		})
		for _, l := range e.claim(n) {
			e.Errorf("task %s was left by both", l.ID)
		}
		met := [2]int{}
		for i := range n {
			if cancelled[i] == leased[i] || claimed[i] != leased[i] {
				e.Fatalf("task %d: cancelled %v, leased %v, claimed %v", i, cancelled[i], leased[i], claimed[i])
			}
			if cancelled[i] {
				met[0]++
			} else {
				met[1]++
			}
		}
		e.Logf("%d cancelled, %d claimed", met[0], met[1])
	}},
	{"two who change settings: one is told", settings, func(e *env) {
		for range 20 {
			s, err := e.st.Settings(e.ctx, q)
			e.must(err)
			var put, told atomic.Int32
			together(4, func(i int) {
				mine := s
				mine.MaxAttempts = i + 1
				switch _, err := e.st.PutSettings(e.ctx, q, mine); {
				case err == nil:
					put.Add(1)
				case isVersion(err):
					told.Add(1)
				default:
					e.Errorf("put settings: %v", err)
				}
			})
			if put.Load() != 1 || told.Load() != 3 {
				e.Fatalf("%d put their settings, %d were told", put.Load(), told.Load())
			}
		}
	}},
	{"everything at once adds up", cancel | reschedule | list, func(e *env) {
		var created, acked, cancelled, buried atomic.Int64
		together(8, func(worker int) {
			for i := range 60 {
				id := func(n int) string { return fmt.Sprint(worker, "/", i, "/", n) }
				tasks := make([]store.NewTask, 5)
				for n := range tasks {
					tasks[n] = store.NewTask{Queue: q, ID: id(n), Due: store.MinTime.Add(time.Duration(i) * time.Second)}
				}
				r, err := e.st.Schedule(e.ctx, tasks)
				for n := range r {
					if r[n].Outcome == store.Created {
						created.Add(1)
					}
				}
				if err != nil {
					e.Errorf("schedule: %v", err)
					return
				}
				c, err := e.st.Cancel(e.ctx, []store.CancelRequest{{Queue: q, ID: id(0)}, {Queue: q, ID: id(1), Force: true}})
				if err != nil {
					e.Errorf("cancel: %v", err)
					return
				}
				for n := range c {
					if c[n].Outcome == store.Cancelled {
						cancelled.Add(1)
					}
				}
				if _, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{{Queue: q, ID: id(2), Due: store.MinTime}}); err != nil {
					e.Errorf("reschedule: %v", err)
				}
				got, err := e.st.Claim(e.ctx, []store.ClaimRequest{{Queue: q, Max: 2, Lease: time.Hour}, {Queue: q, Max: 2, Lease: time.Hour}})
				if err != nil {
					e.Errorf("claim: %v", err)
					return
				}
				var settle []store.Settlement
				for _, r := range got {
					for n, l := range r.Tasks {
						settle = append(settle, store.Settlement{Receipt: l.Receipt, Action: []store.Action{store.Ack, store.Bury, store.Release}[(i+n)%3]})
					}
				}
				s, err := e.st.Settle(e.ctx, settle)
				if err != nil {
					e.Errorf("settle: %v", err)
					return
				}
				for n := range s {
					switch s[n].Outcome {
					case store.Acked:
						acked.Add(1)
					case store.Dead:
						buried.Add(1)
					}
				}
			}
		})
		// A dead task can be cancelled, so that it is not counted twice.
		s := e.stats(q)
		if left := s.Scheduled + s.Ready + s.Leased + s.Dead; created.Load() != acked.Load()+cancelled.Load()+left {
			e.Errorf("%d created, %d acked, %d cancelled, %d left", created.Load(), acked.Load(), cancelled.Load(), left)
		}
		if s.Dead > buried.Load() || s.Leased != 0 {
			e.Errorf("%d dead of %d buried, %d leased", s.Dead, buried.Load(), s.Leased)
		}
	}},
}
