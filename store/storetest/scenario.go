package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

// crew is a number of consumers of one queue, each a goroutine that claims,
// handles and acks as a worker does.
type crew struct {
	*env
	wg   sync.WaitGroup
	stop chan struct{}

	mu   sync.Mutex
	runs []run
	busy int // of the runs, those that are not acked yet
}

type run struct {
	store.Lease
	consumer int
}

// hire starts n consumers that claim up to hands tasks at a time. handle says
// whether a consumer lives on; one that does not is gone with all that it holds.
func (e *env) hire(n, hands int, lease time.Duration, handle func(consumer int, l store.Lease) bool) *crew {
	c := &crew{env: e, stop: make(chan struct{})}
	for i := range n {
		c.wg.Go(func() { c.work(i, hands, lease, handle) })
	}
	return c
}

func (c *crew) work(consumer, hands int, lease time.Duration, handle func(int, store.Lease) bool) {
	for {
		r, err := c.st.Claim(c.ctx, []store.ClaimRequest{{Queue: q, Max: hands, Lease: lease, Worker: fmt.Sprint("consumer ", consumer)}})
		if err != nil {
			c.Errorf("claim: %v", err)
			return
		}
		var acks []store.Settlement
		for _, l := range r[0].Tasks {
			c.mu.Lock()
			c.runs = append(c.runs, run{l, consumer})
			c.busy++
			c.mu.Unlock()
			if handle != nil && !handle(consumer, l) {
				c.mu.Lock()
				c.busy -= len(acks) + 1 // nobody waits for a dead one's acks
				c.mu.Unlock()
				return
			}
			acks = append(acks, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
		}
		if len(acks) > 0 {
			results, err := c.st.Settle(c.ctx, acks)
			if err != nil {
				c.Errorf("ack: %v", err)
				return
			}
			c.mu.Lock()
			c.busy -= len(acks)
			c.mu.Unlock()
			for i := range results {
				if results[i].Outcome != store.Acked {
					c.Errorf("ack of %q: %v", r[0].Tasks[i].ID, results[i].Outcome)
				}
			}
			continue
		}
		select {
		case <-c.stop:
			return
		case <-time.After(time.Millisecond): // in the place of a dispatcher's sleep
		}
	}
}

// done lets the consumers go home when nothing is left to claim, and returns
// what they ran.
func (c *crew) done() []run {
	close(c.stop)
	c.wg.Wait()
	return c.runs
}

// ran waits until n tasks were handed out and the consumers have acked all they
// had: the clock may be moved then, and no lease runs out by that.
func (c *crew) ran(n int) {
	c.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		got, busy := len(c.runs), c.busy
		c.mu.Unlock()
		if got >= n && busy == 0 {
			return
		}
		if time.Now().After(end) || c.Failed() {
			c.done()
			c.Fatalf("%d of %d tasks were handed out within 20 s", got, n)
		}
	}
}

// once says that each id was handed out once.
func (e *env) once(runs []run, want []string) {
	e.Helper()
	count := make(map[string]int)
	for _, r := range runs {
		count[r.ID]++
	}
	for _, id := range want {
		if count[id] != 1 {
			e.Errorf("task %q was handed out %d times", id, count[id])
		}
	}
	if len(runs) != len(want) {
		e.Errorf("%d runs, want %d", len(runs), len(want))
	}
}

var scenarioCases = []testCase{
	{"order timeout", cancel, func(e *env) {
		ago := e.now().Add(-30 * time.Minute)
		soon := e.now().Add(600 * time.Millisecond)
		var tasks []store.NewTask
		var want []string
		for i := range 100 {
			old, late := fmt.Sprintf("overdue %02d", i), fmt.Sprintf("new %02d", i)
			tasks = append(tasks,
				store.NewTask{ID: late, Due: soon.Add(time.Duration(i) * time.Millisecond), Payload: []byte(late)},
				store.NewTask{ID: old, Due: ago.Add(time.Duration(i) * time.Second), Payload: []byte(old)},
			)
		}
		rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
		e.create(tasks...)
		c := e.hire(1, 10, time.Minute, nil)
		c.ran(100)
		for i := range 100 {
			if i%2 == 0 { // paid in time
				e.cancel(store.Cancelled, fmt.Sprintf("new %02d", i), false)
			}
		}
		e.advanceTo(soon.Add(101 * time.Millisecond))
		c.ran(150)
		runs := c.done()
		for i := range 100 {
			want = append(want, fmt.Sprintf("overdue %02d", i))
		}
		for i := 1; i < 100; i += 2 {
			want = append(want, fmt.Sprintf("new %02d", i))
		}
		var got []string
		for _, r := range runs {
			got = append(got, r.ID)
		}
		e.sameIDs("runs", got, want)
		e.counts(0, 0, 0, 0)
	}},
	{"scheduled publishing with ten consumers", 0, func(e *env) {
		var want []string
		var tasks []store.NewTask
		for i := range 4 {
			want = append(want, fmt.Sprint("article ", i))
			tasks = append(tasks, store.NewTask{ID: want[i], Delay: time.Duration(i+1) * 50 * time.Millisecond})
		}
		created := e.create(tasks...)
		c := e.hire(10, 1, time.Minute, nil)
		for i := range created {
			e.advanceTo(created[i].Due)
			c.ran(i + 1)
		}
		runs := c.done()
		e.once(runs, want)
		for i, r := range runs {
			if late := r.ClaimedAt.Sub(r.Due); late > time.Second || r.ID != want[i] {
				e.Errorf("run %d: %q, late by %v", i, r.ID, late)
			}
		}
	}},
	{"ten consumers of ten thousand tasks due at one instant", 0, func(e *env) {
		const n = 10_000
		due := e.past()
		var want []string
		var tasks []store.NewTask
		for i := range n {
			want = append(want, fmt.Sprint(i))
			tasks = append(tasks, store.NewTask{ID: want[i], Due: due})
		}
		e.create(tasks...)
		c := e.hire(10, 50, time.Hour, nil)
		c.ran(n)
		e.once(c.done(), want)
		e.counts(0, 0, 0, 0)
	}},
	{"a consumer dies in the middle", 0, func(e *env) {
		const n, victim = 2000, 1
		due := e.past()
		var tasks []store.NewTask
		for i := range n {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprint(i), Due: due.Add(time.Duration(i) * time.Millisecond)})
		}
		e.create(tasks...)
		lease := 2 * time.Second
		if e.in.Advance != nil {
			lease = time.Minute
		}
		var mu sync.Mutex
		handled := 0
		died := make(chan struct{})
		c := e.hire(3, 20, lease, func(consumer int, _ store.Lease) bool {
			select {
			case <-died:
			default:
				if consumer != victim { // wait for the victim, so that it has its share
					mu.Lock()
					slow := handled > n/2
					mu.Unlock()
					if slow {
						<-died
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			handled++
			if consumer == victim && handled >= n/3 {
				close(died)
				return false
			}
			return true
		})
		<-died
		e.waitFor(c, func() bool { return e.stats(q).Ready == 0 })
		runs := c.done() // the living have acked all that they had
		if left := e.stats(q).Leased; e.in.Advance != nil && (left == 0 || left > 20) {
			e.Errorf("%d tasks are leased, want those that the dead one held", left)
		}
		e.advance(lease)
		c = e.hire(2, 20, lease, nil)
		e.waitFor(c, func() bool { s := e.stats(q); return s.Ready+s.Leased == 0 })
		for _, r := range c.done() {
			r.consumer += 3
			runs = append(runs, r)
		}
		var held []string
		count := make(map[string][]run)
		for _, r := range runs {
			count[r.ID] = append(count[r.ID], r)
		}
		// What the victim had in hand but not yet begun is in nobody's list of
		// runs; all that is repeated must have been its.
		for id, r := range count {
			if len(r) > 1 {
				held = append(held, id)
				if r[0].consumer != victim || len(r) > 2 {
					e.Errorf("task %q ran %d times, first at consumer %d", id, len(r), r[0].consumer)
				}
			}
		}
		if len(count) != n {
			e.Errorf("%d of %d tasks ran", len(count), n)
		}
		if len(held) == 0 || len(held) > 20 {
			e.Errorf("%d tasks were repeated, want those that the dead one had run and not acked", len(held))
		}
		e.counts(0, 0, 0, 0)
	}},
	{"the timer is changed while running", release | settings | fakeClock, func(e *env) {
		base := e.nextMultiple(time.Minute)
		e.advanceTo(base)
		e.set(func(s *store.Settings) { s.Release = "every 5s" })
		var tasks []store.NewTask
		for i := range 180 {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprintf("%03d", i), Due: base.Add(time.Duration(i)*time.Second + 300*time.Millisecond)})
		}
		e.create(tasks...)
		out := make(map[string]time.Duration)
		for second := range 200 {
			at := time.Duration(second) * time.Second
			e.advanceTo(base.Add(at))
			switch second {
			case 62:
				e.set(func(s *store.Settings) { s.Release = "30 * * * * *" })
			case 121:
				e.set(func(s *store.Settings) { s.Release = "every 5s" })
			}
			for _, l := range e.claim(100) {
				out[l.ID] = at
				e.ack(l)
			}
		}
		for i := range 180 {
			due := time.Duration(i)*time.Second + 300*time.Millisecond
			next := func(multiple, offset time.Duration) time.Duration {
				return (due-offset+multiple-1)/multiple*multiple + offset
			}
			want := next(5*time.Second, 0)
			if want > 60*time.Second { // not let out before the change
				want = next(time.Minute, 30*time.Second)
				if due < 30*time.Second {
					want = 0
				}
				if want > 121*time.Second { // and not before it was changed back
					want = max(next(5*time.Second, 0), 121*time.Second)
				}
			}
			if got := out[fmt.Sprintf("%03d", i)]; got != want {
				e.Errorf("the task due at %v was let out at %v, want %v", due, got, want)
			}
		}
	}},
	{"far and near", 0, func(e *env) {
		const year = 365 * 24 * time.Hour
		delays := []time.Duration{
			10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second,
			time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 50 * 24 * time.Hour, year, 10 * year,
		}
		var tasks []store.NewTask
		for _, d := range delays {
			for i := range 10 {
				d := d + time.Duration(i)*time.Millisecond
				tasks = append(tasks, store.NewTask{ID: d.String(), Delay: d})
			}
		}
		order := slices.Clone(tasks)
		rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
		created := e.create(tasks...)
		due := make(map[string]time.Time)
		for i, r := range created {
			due[tasks[i].ID] = r.Due
		}
		c := e.hire(2, 3, time.Minute, nil)
		n := 0
		for _, t := range order {
			if e.in.Advance == nil && t.Delay > 2*time.Second {
				break // the rest is for stores whose clock can be moved
			}
			e.advanceTo(due[t.ID])
			n++
			c.ran(n)
		}
		runs := c.done()
		for _, r := range runs {
			if !r.Due.Equal(due[r.ID]) {
				e.Errorf("task %q was due at %v when it was handed out, want %v", r.ID, r.Due, due[r.ID])
			}
			// Other tests are busy with a broker at the same time.
			if late := r.ClaimedAt.Sub(r.Due); late > time.Second+10*e.late {
				e.Errorf("task %q was late by %v", r.ID, late)
			}
		}
		if len(runs) != n {
			e.Errorf("%d tasks ran, want the %d that were due", len(runs), n)
		}
		if e.caps.Uncounted {
			n = len(tasks)
		}
		e.counts(int64(len(tasks)-n), 0, 0, 0)
	}},
	{"the store crashes in the middle, three consumers go on", reopen, func(e *env) {
		const n = 3000
		due := e.past()
		var tasks []store.NewTask
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint(i))
			tasks = append(tasks, store.NewTask{ID: want[i], Due: due.Add(time.Duration(i) * time.Millisecond)})
		}
		e.create(tasks...)
		var all []run
		for round := range 3 {
			// A crash comes between calls: what happens to calls in the middle
			// is for tests that kill processes.
			var mu sync.Mutex
			left := n / 4
			c := e.hire(3, 20, time.Hour, func(int, store.Lease) bool {
				mu.Lock()
				defer mu.Unlock()
				left--
				return left > 0
			})
			c.wg.Wait()
			all = append(all, c.runs...)
			e.reopen()
			e.Logf("crash %d after %d runs", round+1, len(all))
		}
		// Some died with leases in hand, which must not come again before they
		// run out.
		if e.in.Advance == nil {
			return
		}
		c := e.hire(3, 20, time.Hour, nil)
		e.waitFor(c, func() bool { return e.stats(q).Ready == 0 })
		all = append(all, c.done()...)
		e.advance(time.Hour)
		c = e.hire(3, 20, time.Hour, nil)
		e.waitFor(c, func() bool { s := e.stats(q); return s.Ready+s.Leased == 0 })
		all = append(all, c.done()...)
		ran := make(map[string]int)
		for _, r := range all {
			ran[r.ID]++
		}
		for _, id := range want {
			if ran[id] == 0 {
				e.Errorf("task %q never ran", id)
			}
		}
		if extra := len(all) - n; extra > 3*3*20 {
			e.Errorf("%d runs were repeated, more than the consumers had in hand", extra)
		}
	}},
}

// waitFor waits until a condition holds, while a crew works.
func (e *env) waitFor(c *crew, ok func() bool) {
	e.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || e.Failed() {
			c.done()
			e.Fatalf("not within 20 s; stats are %+v", e.stats(q))
		}
	}
}
