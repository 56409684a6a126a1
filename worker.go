package duetime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime/store"
)

// Handler does the work of a task. Returning nil means that it is done and gone.
// An error, or a panic, is a failed attempt: the task comes back after the
// queue's backoff until it is out of attempts, and is then dead. [RetryIn],
// [Snooze] and [Dead] say otherwise.
//
// A task may be handed out again where a worker died or was cut off from the
// store before it could say that the task was done, so a handler should bear
// being run twice; then t.Attempt is above 1. The context ends when the task is
// no longer the worker's (cause [ErrLeaseLost]), or when the worker has been
// stopped and the time for that is over (cause [ErrStopping]); an error that is
// returned after that counts nothing against the task. It also ends when the
// handler returns.
type Handler func(ctx context.Context, t *Task) error

// Middleware wraps a handler, for what is to be done around every task.
type Middleware func(next Handler) Handler

// WorkerOptions change what a worker does. The zero value is right.
type WorkerOptions struct {
	// Name is shown to people as the holder of a task, cut to 255 bytes. Empty:
	// the host's name and the process id.
	Name string

	// Concurrency is how many tasks of one queue run at the same time, unless
	// [QueueOptions] say otherwise. 0: 32.
	Concurrency int

	// StopTimeout is for how long handlers may go on once the worker is told to
	// stop, before their contexts end. 0: 8 s; negative: not at all.
	StopTimeout time.Duration
}

// QueueOptions change how a worker handles one queue. The zero value is right.
type QueueOptions struct {
	// Concurrency is how many of the queue's tasks run at the same time. 0: the
	// worker's.
	Concurrency int

	// Lease is for how long a task stays this worker's after its last sign of
	// life, 1 ms to 24 h: if the process dies, others get the task after so long.
	// While a handler runs the worker extends the lease, so that it need not be as
	// long as the handler takes. 0: the queue's setting (30 s unless changed).
	Lease time.Duration

	// AtMostOnce removes tasks as they are handed out: a task never runs twice,
	// and is lost where its worker dies. Errors are logged and that is all.
	AtMostOnce bool
}

const (
	defaultConcurrency = 32
	maxConcurrency     = 1_000_000
	// defaultStopTimeout leaves a little of the ten seconds that those who stop
	// processes mostly give them.
	defaultStopTimeout = 8 * time.Second
	// cancelGrace is for how long a handler whose context was ended by Stop may
	// take to return, and its word still counts.
	cancelGrace = 500 * time.Millisecond
	// flushTimeout is for how long Run keeps trying to tell the store what became
	// of the last tasks.
	flushTimeout = 5 * time.Second
)

// Worker runs handlers on tasks whose time has come. Set it up with Handle and
// Use, then call Run once. Its methods may be called by any goroutine.
//
// It claims no more tasks than it has hands free, so that none waits leased; it
// extends the leases of those that run; and it tells the store what became of
// them in batches.
type Worker struct {
	client      *Client
	name        string
	concurrency int
	stopTimeout time.Duration

	mu         sync.Mutex
	queues     map[string]*workerQueue
	middleware []Middleware
	ctx        context.Context // Run's; nil before
	stopped    bool            // by Stop

	stop chan struct{} // closed by the first Stop
	now  chan struct{} // closed by the second

	stopping atomic.Bool     // nothing is started any more
	base     context.Context // of handlers: Run's, without its end
	hands    sync.WaitGroup
	leases   *keeper
	outbox   *outbox
}

// NewWorker makes a worker. opts may be nil.
func NewWorker(c *Client, opts *WorkerOptions) *Worker {
	if opts == nil {
		opts = new(WorkerOptions)
	}
	w := &Worker{
		client:      c,
		name:        opts.Name,
		concurrency: cmp.Or(opts.Concurrency, defaultConcurrency),
		stopTimeout: cmp.Or(opts.StopTimeout, defaultStopTimeout),
		queues:      make(map[string]*workerQueue),
		stop:        make(chan struct{}),
		now:         make(chan struct{}),
	}
	if w.name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		w.name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	w.leases = newKeeper(w)
	w.outbox = newOutbox(w)
	return w
}

// Handle says what is to be done with the tasks of a queue. Queues without a
// handler are left alone. It panics when the queue has a handler already, and
// after Run has begun.
func (w *Worker) Handle(queue string, h Handler) { w.HandleWith(queue, QueueOptions{}, h) }

// HandleWith is Handle with options.
func (w *Worker) HandleWith(queue string, opts QueueOptions, h Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ctx != nil:
		panic("duetime: Worker.Handle was called after Run")
	case h == nil:
		panic("duetime: Worker.Handle got no handler for queue " + queue)
	case w.queues[queue] != nil:
		panic("duetime: Worker.Handle was called twice for queue " + queue)
	}
	opts.Concurrency = cmp.Or(opts.Concurrency, w.concurrency)
	w.queues[queue] = newWorkerQueue(w, queue, opts, h)
}

// Use puts middleware around the handlers of all queues; the first given is the
// outermost. It panics after Run has begun.
func (w *Worker) Use(middleware ...Middleware) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx != nil {
		panic("duetime: Worker.Use was called after Run")
	}
	w.middleware = append(w.middleware, middleware...)
}

// Stop begins to stop the worker, as the end of Run's context does, and returns
// at once. A second call, or one after the context has ended, means now: it ends
// the handlers' contexts without waiting any longer.
func (w *Worker) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.ctx != nil && w.ctx.Err() != nil {
		select {
		case <-w.now:
		default:
			close(w.now)
		}
	}
	if !w.stopped {
		w.stopped = true
		close(w.stop)
	}
}

// Run claims tasks and runs their handlers until ctx ends or Stop is called, and
// then stops in good order: it claims nothing more, lets handlers finish for up
// to WorkerOptions.StopTimeout, then ends their contexts, gives back what is
// still running, so that other workers get it at once with nothing counted, and
// returns nil. A handler that ignores the end of its context is left behind.
//
// Trouble with the store does not end it: it is logged, and tried again for ever.
// The error says what was set up wrongly, or that the store was closed.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	claims, cancel := context.WithCancel(ctx)
	defer cancel()
	background := sync.WaitGroup{}
	background.Go(w.leases.run)
	background.Go(w.outbox.run)
	fetchers := sync.WaitGroup{}
	failed := make(chan error, len(w.queues))
	for _, q := range w.queues {
		fetchers.Go(func() {
			if err := q.fetch(claims); err != nil {
				failed <- err
			}
		})
	}

	var err error
	select {
	case <-ctx.Done():
	case <-w.stop:
	case err = <-failed:
	}
	w.stopping.Store(true)
	w.outbox.open()
	cancel()
	fetchers.Wait()
	w.finish()
	w.outbox.close()
	w.leases.close()
	background.Wait()
	return err
}

// begin checks what was set up, and closes it for changes.
func (w *Worker) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx != nil {
		return errors.New("duetime: Worker.Run was called twice")
	}
	if len(w.queues) == 0 {
		return errors.New("duetime: worker has no handlers: call Worker.Handle before Run")
	}
	for name, q := range w.queues {
		if n := q.opts.Concurrency; n < 1 || n > maxConcurrency {
			return opError("work", name, "", store.NewInputError("concurrency", n, "must be 1 to %d", maxConcurrency))
		}
		req := q.request(1)
		if err := req.Check(); err != nil {
			return opError("work", name, "", err)
		}
	}
	for _, q := range w.queues {
		for _, m := range slices.Backward(w.middleware) {
			q.handler = m(q.handler)
		}
	}
	w.ctx = ctx
	w.base = context.WithoutCancel(ctx)
	return nil
}

// finish waits for the handlers, as long as they may take, and gives back what
// they have not done by then.
func (w *Worker) finish() {
	for _, q := range w.queues {
		close(q.tasks) // hands go home once it is empty
	}
	home := make(chan struct{})
	go func() {
		w.hands.Wait()
		close(home)
	}()
	if w.stopTimeout > 0 {
		timeout := time.NewTimer(w.stopTimeout)
		defer timeout.Stop()
		select {
		case <-home:
			return
		case <-timeout.C:
		case <-w.now:
		}
	}
	for _, r := range w.leases.all() {
		r.cancel(ErrStopping)
	}
	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case <-home:
		return
	case <-grace.C:
	}
	left := 0
	for _, r := range w.leases.all() {
		if r.receipt != "" && r.end() {
			left++
			r.settlement = store.Settlement{Receipt: r.receipt, Action: store.Release}
			r.err = ErrStopping
			w.outbox.add(r)
		}
	}
	if left > 0 {
		w.client.logger.Warn("duetime: worker stopped while handlers were running; their tasks were given back", "tasks", left, "worker", w.name)
	}
}
