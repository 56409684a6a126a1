package duetime

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime/store"
)

// workerQueue is what a worker has for one queue: a fetcher, which claims for the
// hands that are free, and the hands.
type workerQueue struct {
	w       *Worker
	name    string
	opts    QueueOptions
	handler Handler

	free    atomic.Int64  // hands without a task
	freed   chan struct{} // ticks when there is one again
	tasks   chan *run     // never holds more than free hands take at once
	started int           // hands there are; the fetcher's own
}

func newWorkerQueue(w *Worker, name string, opts QueueOptions, h Handler) *workerQueue {
	q := &workerQueue{w: w, name: name, opts: opts, handler: h, freed: make(chan struct{}, 1)}
	if n := opts.Concurrency; n > 0 && n <= maxConcurrency { // begin refuses others
		q.free.Store(int64(n))
		q.tasks = make(chan *run, n)
	}
	return q
}

// run is one attempt at one task.
type run struct {
	task    Task // as it was claimed
	given   Task // the handler's copy, to do with as it likes
	q       *workerQueue
	receipt store.Receipt
	ctx     context.Context
	cancel  context.CancelCauseFunc
	begun   time.Time

	ended atomic.Bool // by its handler's return, or taken from it; see end
	stale atomic.Bool // the store has said that the lease is lost
	late  atomic.Bool // the lease's time has passed here

	// Once it has ended: what is to be done, and why.
	settlement store.Settlement
	err        error
	took       time.Duration
	second     bool // the store refused the first settlement

	// The keeper's, under its mutex.
	prev, next *run
	listed     bool
	lease      time.Duration
	until      time.Time // when the lease ends, by this process's clock
	extend     time.Time // when to extend it
	deadline   time.Time // when it ends by the store's clock
}

// end ends the run for whoever calls it first, and reports whether that was now.
// Whoever it was settles the task; the other leaves it alone.
func (r *run) end() bool { return r.ended.CompareAndSwap(false, true) }

// held reports whether there is a lease to be kept.
func (r *run) held() bool {
	return r.receipt != "" && !r.ended.Load() && !r.stale.Load() && !r.late.Load()
}

func (q *workerQueue) request(n int) store.ClaimRequest {
	return store.ClaimRequest{
		Queue: q.name, Max: min(n, store.MaxBatch), Lease: q.opts.Lease,
		Worker: q.w.name, AtMostOnce: q.opts.AtMostOnce,
	}
}

// fetch claims tasks for the free hands until ctx ends.
func (q *workerQueue) fetch(ctx context.Context) error {
	for full := false; ; {
		if full {
			// More is there. Let the hands run first: those that are quick are free
			// again for this claim, and a claim costs much the same for one task as
			// for a hundred.
			runtime.Gosched()
		}
		n := q.free.Load()
		for n <= 0 {
			select {
			case <-q.freed:
				n = q.free.Load()
			case <-ctx.Done():
				return nil
			}
		}
		leases, err := q.w.client.dispatcher.Take(ctx, q.request(int(n)))
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return opError("work", q.name, "", err)
		}
		full = len(leases) == int(n)
		q.start(leases)
	}
}

// start gives tasks to hands.
func (q *workerQueue) start(leases []store.Lease) {
	now := time.Now()
	runs := make([]run, len(leases))
	for i := range leases {
		l, r := &leases[i], &runs[i]
		r.task.fill(&l.Task)
		r.task.State = store.StateLeased
		r.task.ClaimedAt = l.ClaimedAt
		r.q, r.receipt = q, l.Receipt
		r.ctx, r.cancel = context.WithCancelCause(q.w.base)
		r.lease = l.LeaseUntil.Sub(l.ClaimedAt)
		r.until, r.extend, r.deadline = now.Add(r.lease), now.Add(r.lease/3), l.LeaseUntil
		if hook := q.w.client.hooks.HandedOut; hook != nil {
			hook(&r.task, r.task.Lateness())
		}
	}
	q.w.leases.add(runs)
	busy := q.opts.Concurrency - int(q.free.Add(-int64(len(runs))))
	for q.started < busy {
		q.started++
		q.w.hands.Go(q.hand)
	}
	for i := range runs {
		q.tasks <- &runs[i]
	}
}

// hand runs tasks, one at a time.
func (q *workerQueue) hand() {
	replace := true
	defer func() {
		if replace { // a handler has ended its goroutine, which is this one
			q.w.hands.Go(q.hand)
		}
	}()
	for r := range q.tasks {
		q.do(r)
		q.handBack()
	}
	replace = false
}

func (q *workerQueue) handBack() {
	if q.free.Add(1) == 1 {
		select {
		case q.freed <- struct{}{}:
		default:
		}
	}
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

func (q *workerQueue) do(r *run) {
	if q.w.stopping.Load() && r.receipt != "" {
		// Claimed as the worker was stopped. What was claimed at most once can not
		// be given back, so it is done.
		if r.end() {
			r.settlement = store.Settlement{Receipt: r.receipt, Action: store.Release}
			r.err = ErrStopping
			q.w.outbox.add(r)
		}
		return
	}
	r.begun = time.Now()
	returned := false
	defer func() {
		if !returned {
			q.settle(r, errGoexit)
			q.handBack()
		}
	}()
	err := q.call(r)
	returned = true
	q.settle(r, err)
}

// call runs the handler. A panic becomes an error with the stack, which the store
// cuts to its limit.
func (q *workerQueue) call(r *run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	r.given = r.task
	return q.handler(r.ctx, &r.given)
}

type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.value, e.stack) }

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// settle says what is to be done with a task whose handler has returned.
func (q *workerQueue) settle(r *run, err error) {
	stopped := err != nil && context.Cause(r.ctx) == ErrStopping
	r.cancel(nil)
	if !r.end() {
		return // it was given back already
	}
	r.took, r.err = time.Since(r.begun), err
	w := q.w
	switch {
	case r.receipt == "":
		if err != nil {
			w.client.logger.Error("duetime: handler failed, and the task is gone: its queue is handled at most once", "queue", q.name, "id", r.task.ID, "error", err)
		}
		w.leases.remove([]*run{r})
		w.outbox.report(r, store.Acked)
		return
	case r.stale.Load() || err != nil && r.late.Load():
		w.leases.remove([]*run{r})
		w.outbox.report(r, store.Stale)
		return
	}
	r.settlement = store.Settlement{Receipt: r.receipt, Action: store.Ack}
	if err != nil {
		r.settlement = verdictOn(err, stopped)
		r.settlement.Receipt = r.receipt
	}
	w.outbox.add(r)
}

// verdictOn says what is to be done with a task whose handler returned err.
func verdictOn(err error, stopped bool) store.Settlement {
	var v *verdict
	switch {
	case errors.As(err, &v):
		s := store.Settlement{Action: v.action, Delay: v.delay}
		if v.action != store.Snooze {
			s.Error = errorText(err)
		}
		return s
	case stopped: // whatever the error is, it came of that
		return store.Settlement{Action: store.Release}
	}
	return store.Settlement{Action: store.Retry, Backoff: true, Error: errorText(err)}
}

// errorText survives errors whose Error panics, such as nil pointers in an
// interface.
func errorText(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("(error of type %T, whose text could not be had: %v)", err, p)
		}
	}()
	return err.Error()
}
