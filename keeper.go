package duetime

import (
	"context"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

// keeper extends the leases of the tasks that run, each when a third of its time
// has passed, and ends the contexts of those whose lease is lost. It is one
// goroutine per worker, with one call for all that are due.
type keeper struct {
	w    *Worker
	wake chan struct{}

	mu          sync.Mutex
	first, last *run      // all runs, until the store knows what became of them
	next        time.Time // when the goroutine wakes by itself; zero: not at all
	closed      bool
}

func newKeeper(w *Worker) *keeper { return &keeper{w: w, wake: make(chan struct{}, 1)} }

func (k *keeper) add(runs []run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sooner := false
	for i := range runs {
		r := &runs[i]
		r.listed = true
		r.prev = k.last
		if k.last != nil {
			k.last.next = r
		} else {
			k.first = r
		}
		k.last = r
		if r.receipt != "" && (k.next.IsZero() || r.extend.Before(k.next)) {
			k.next = r.extend
			sooner = true
		}
	}
	if sooner {
		k.kick()
	}
}

func (k *keeper) remove(runs []*run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range runs {
		if !r.listed {
			continue
		}
		r.listed = false
		if r.prev != nil {
			r.prev.next = r.next
		} else {
			k.first = r.next
		}
		if r.next != nil {
			r.next.prev = r.prev
		} else {
			k.last = r.prev
		}
		r.prev, r.next = nil, nil
	}
}

// all returns the runs that have not ended.
func (k *keeper) all() []*run {
	k.mu.Lock()
	defer k.mu.Unlock()
	var runs []*run
	for r := k.first; r != nil; r = r.next {
		if !r.ended.Load() {
			runs = append(runs, r)
		}
	}
	return runs
}

// end is when a run's lease ends, by this process's clock.
func (k *keeper) end(r *run) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.until
}

func (k *keeper) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.kick()
}

func (k *keeper) run() {
	alarm := k.w.client.clock.NewAlarm()
	defer alarm.Stop()
	for {
		due, wait, ok := k.look()
		if !ok {
			return
		}
		if len(due) > 0 {
			k.extend(due)
			continue
		}
		if wait > 0 {
			// The alarm is on the wall clock, so that it also rings when the machine
			// wakes from a suspension, which the monotonic clock knows nothing of.
			alarm.Set(time.Now().Add(wait))
		} else {
			alarm.Stop()
		}
		select {
		case <-alarm.C():
		case <-k.wake:
		}
	}
}

// look ends the runs whose lease has passed, and returns those whose lease is to
// be extended, or else how long there is to wait for that; 0: nothing runs.
func (k *keeper) look() (due []*run, wait time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, 0, false
	}
	now := time.Now()
	wall := now.Round(0)
	k.next = time.Time{}
	for r := k.first; r != nil; r = r.next {
		if !r.held() {
			continue
		}
		next := r.extend
		switch {
		case !now.Before(r.until):
			r.late.Store(true)
			k.lost(r)
			continue
		case !now.Before(r.extend) || !wall.Before(r.extend.Round(0)):
			due = append(due, r)
			continue
		case r.until.Before(next):
			next = r.until
		}
		if k.next.IsZero() || next.Before(k.next) {
			k.next = next
		}
	}
	if !k.next.IsZero() {
		wait = max(k.next.Sub(now), 1)
	}
	return due, wait, true
}

// extend extends leases, in one call where that is possible.
func (k *keeper) extend(due []*run) {
	for len(due) > 0 {
		n := min(len(due), store.MaxBatch)
		k.call(due[:n])
		due = due[n:]
	}
}

func (k *keeper) call(due []*run) {
	settlements := make([]store.Settlement, len(due))
	sent := time.Now()
	k.mu.Lock()
	timeout := settleTimeout
	for i, r := range due {
		settlements[i] = store.Settlement{Receipt: r.receipt, Action: store.Extend, Lease: r.q.opts.Lease}
	}
	// Not longer than the first lease lasts, whose end is to be noticed here.
	for r := k.first; r != nil; r = r.next {
		if r.held() {
			timeout = min(timeout, r.until.Sub(sent))
		}
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), max(timeout, time.Millisecond))
	results, err := k.w.client.store.Settle(ctx, settlements)
	cancel()

	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil || len(results) != len(due) {
		k.w.client.logger.Warn("duetime: leases could not be extended, trying again", "leases", len(due), "worker", k.w.name, "error", err)
		now := time.Now()
		for _, r := range due {
			r.extend = now.Add(min(r.lease/10, settleBackoffMax))
		}
		return
	}
	for i, r := range due {
		switch results[i].Outcome {
		case store.Extended:
			// The store's two deadlines differ by as much as ours do, whatever the
			// clocks show.
			if at := results[i].At; !at.IsZero() {
				r.until = r.until.Add(at.Sub(r.deadline))
				r.deadline = at
			} else {
				r.until = sent.Add(r.lease)
			}
			r.lease = max(r.until.Sub(sent), time.Millisecond)
			r.extend = sent.Add(r.lease / 3)
		case store.Stale:
			r.stale.Store(true)
			if !r.ended.Load() {
				k.lost(r)
			}
		default: // refused: tried again until the lease's time has passed
			r.extend = time.Now().Add(min(r.lease/10, settleBackoffMax))
		}
	}
}

// lost tells a handler that its task is no longer its own. Called under the mutex.
func (k *keeper) lost(r *run) {
	r.cancel(ErrLeaseLost)
	c := k.w.client
	go func() { // the mutex is held
		c.logger.Warn("duetime: lease lost while the task was running", "queue", r.task.Queue, "id", r.task.ID, "attempt", r.task.Attempt, "worker", k.w.name)
		if c.hooks.LeaseLost != nil {
			c.hooks.LeaseLost(&r.task)
		}
	}()
}
