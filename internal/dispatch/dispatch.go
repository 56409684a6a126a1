// Package dispatch gives tasks to those who wait for them, the moment they are
// due, without anybody polling.
//
// There is one loop per queue, however many wait for its tasks. It sleeps until
// the next task is due, the store says that something came up earlier, or a
// second has passed, whichever is first; then it claims once for as many waiters
// as there is likely work for, in one call, and hands out first come, first
// served. The Worker and the server's waiting claims both sit on it.
package dispatch

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/duetime/duetime/internal/clock"
	"github.com/duetime/duetime/store"
)

// Options change how a dispatcher works. The zero value is right.
type Options struct {
	Clock    clock.Clock   // nil: the system's
	Logger   *slog.Logger  // nil: slog.Default()
	Fallback time.Duration // the longest sleep while somebody waits; 0: 1 s
}

// Dispatcher claims tasks for those who wait for them. It is safe for use by any
// number of goroutines.
type Dispatcher struct {
	store    store.Store
	clock    clock.Clock
	logger   *slog.Logger
	fallback time.Duration
	linger   time.Duration // for how long a loop outlives its last waiter
	ahead    time.Duration // how far ahead the store is asked for tasks; 0: not at all

	ctx    context.Context // of calls of the store
	cancel context.CancelFunc

	atStore atStore // where the store waits itself

	mu     sync.Mutex
	queues map[string]*queue
	closed bool
	work   sync.WaitGroup // loops, and releases on their way; added to under mu
}

const (
	// callTimeout ends a call that the store has forgotten about.
	callTimeout = 30 * time.Second
	// closeTimeout is for how long Close waits for calls in flight.
	closeTimeout = 5 * time.Second
	// leaveTimeout is for how long a Take whose context has ended waits for its
	// claim to come back and be released, so that a process that ends after its
	// Takes have ended leaves nothing leased behind.
	leaveTimeout = time.Second
)

// New makes a dispatcher. It starts nothing yet. opts may be nil.
func New(st store.Store, opts *Options) *Dispatcher {
	if opts == nil {
		opts = new(Options)
	}
	d := &Dispatcher{
		store:    st,
		clock:    opts.Clock,
		logger:   cmp.Or(opts.Logger, slog.Default()),
		fallback: cmp.Or(opts.Fallback, time.Second),
		linger:   10 * time.Second,
		queues:   make(map[string]*queue),
	}
	if d.clock == nil {
		d.clock = clock.New()
	}
	if d.clock.Virtual() {
		d.linger = 0 // a bubble can not end while a loop is there
	}
	if !d.clock.Virtual() {
		d.ahead = min(st.Capabilities().Ahead, store.MaxAhead)
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.atStore = newAtStore(st)
	return d
}

// waiter is a Take that waits.
type waiter struct {
	req    store.ClaimRequest
	answer chan answer // with room for one

	// Under Dispatcher.mu.
	prev, next *waiter // in queue.waiters
	claiming   bool    // its request is with the store
	answered   bool    // answer has been sent
	gone       bool    // its context has ended; it is out of the list
	abandoned  bool    // and nobody takes the answer any more
}

type answer struct {
	leases []store.Lease
	err    error
}

// Take waits until tasks of req.Queue are due, and returns at least one and at
// most req.Max of them. Those who came first are served first.
//
// Trouble with the store is waited out; see Health for how it is going. The error
// is an *InputError where the request is wrong, store.ErrClosed where the
// dispatcher or the store was closed, wraps store.ErrUnsupported where the store
// can not claim, and otherwise that of ctx. What was claimed for a caller whose
// context ended is released at once, before Take returns if the store answers
// within a second. Only what was claimed at most once can not be released: such a
// caller waits for its claim to come back, and gets what it brings.
func (d *Dispatcher) Take(ctx context.Context, req store.ClaimRequest) ([]store.Lease, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if d.atStore.claimer != nil {
		return d.takeAtStore(ctx, req)
	}
	w := &waiter{req: req, answer: make(chan answer, 1)}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, store.ErrClosed
	}
	q := d.queues[req.Queue]
	if q == nil {
		q = newQueue(d, req.Queue)
		d.queues[req.Queue] = q
		d.work.Go(q.run)
	}
	q.waiters.push(w)
	q.joined(w)
	if q.waiters.len == 1 || len(q.held) > 0 {
		q.kick() // with others waiting, the loop is awake, or sleeps for good reason
	}
	d.mu.Unlock()

	select {
	case a := <-w.answer:
		return a.leases, a.err
	case <-ctx.Done():
		return d.leave(ctx, q, w)
	}
}

// leave ends the wait of a caller whose context has ended.
func (d *Dispatcher) leave(ctx context.Context, q *queue, w *waiter) ([]store.Lease, error) {
	d.mu.Lock()
	w.gone = true
	if !w.answered {
		q.waiters.remove(w)
	}
	wait := w.answered || w.claiming
	rest := q.leaveHeld()
	d.mu.Unlock()
	if !wait && rest == nil {
		return nil, ctx.Err()
	}
	var timeout <-chan time.Time
	if !w.req.AtMostOnce {
		timeout = time.After(leaveTimeout)
	}
	if rest != nil {
		select {
		case <-rest:
		case <-timeout:
		}
	}
	if !wait {
		return nil, ctx.Err()
	}
	var a answer
	select {
	case a = <-w.answer:
	case <-timeout:
		d.mu.Lock()
		w.abandoned = !w.answered
		d.mu.Unlock()
		if w.abandoned {
			return nil, ctx.Err() // the loop releases what comes
		}
		a = <-w.answer
	}
	if w.req.AtMostOnce && len(a.leases) > 0 {
		return a.leases, nil
	}
	select {
	case <-d.release(a.leases, false):
	case <-timeout:
	}
	return nil, ctx.Err()
}

// Health says how a dispatcher is getting on with its store.
type Health struct {
	Waiting int // callers of Take

	// LastSuccess is when the store last answered a claim, of the queue where that
	// is longest ago. Queues that nobody waits for do not count; if there is no
	// other, it is now.
	LastSuccess time.Time

	// LastError is why the last claim of such a queue failed; nil once one has
	// succeeded again.
	LastError error
}

// Health tells whether claims succeed. While somebody waits there is one a second
// at least, so that a LastSuccess of several seconds ago means trouble.
func (d *Dispatcher) Health() Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := Health{LastSuccess: d.clock.Now()}
	for _, q := range d.queues {
		if q.waiters.len == 0 {
			continue
		}
		h.Waiting += q.waiters.len
		if q.lastSuccess.Before(h.LastSuccess) {
			h.LastSuccess = q.lastSuccess
		}
		if q.lastError != nil {
			h.LastError = q.lastError
		}
	}
	d.healthAtStore(&h)
	return h
}

// Close stops claiming and releases what was claimed and not handed out. Those who
// wait get store.ErrClosed. It waits for calls in flight, though not for long, and
// does not close the store.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	for _, q := range d.queues {
		q.kick()
	}
	d.mu.Unlock()
	d.atStore.cancel()
	timer := time.AfterFunc(closeTimeout, d.cancel)
	d.work.Wait()
	timer.Stop()
	d.cancel()
}

// release gives back leases that have no taker, in the background. The channel is
// closed when that is done, or there is no use in trying further. Close waits for
// it if it is called by a loop.
func (d *Dispatcher) release(leases []store.Lease, byLoop bool) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.releaseLocked(leases, byLoop)
}

func (d *Dispatcher) releaseLocked(leases []store.Lease, byLoop bool) <-chan struct{} {
	done := make(chan struct{})
	settlements := make([]store.Settlement, 0, len(leases))
	var left time.Duration // until the last of them ends by itself
	for i := range leases {
		if l := &leases[i]; l.Receipt != "" {
			settlements = append(settlements, store.Settlement{Receipt: l.Receipt, Action: store.Release})
			left = max(left, l.LeaseUntil.Sub(l.ClaimedAt))
		}
	}
	if len(settlements) == 0 {
		close(done)
		return done
	}
	work := func() {
		defer close(done)
		d.settle(settlements, left)
	}
	if d.closed && !byLoop {
		go work() // Close may no longer be waiting for anybody
	} else {
		d.work.Go(work)
	}
	return done
}

// settle tries for as long as the leases last.
func (d *Dispatcher) settle(settlements []store.Settlement, left time.Duration) {
	deadline := time.Now().Add(left)
	for wait := backoffMin; ; wait = min(2*wait, backoffMax) {
		ctx, cancel := context.WithTimeout(d.ctx, callTimeout)
		_, err := d.store.Settle(ctx, settlements)
		cancel()
		if err == nil {
			return
		}
		if d.ctx.Err() != nil || isFinal(err) || time.Now().Add(wait).After(deadline) {
			d.logger.Warn("duetime: claimed tasks could not be released, so they come back when their leases end", "tasks", len(settlements), "error", err)
			return
		}
		select {
		case <-time.After(jitter(wait)):
		case <-d.ctx.Done():
		}
	}
}
