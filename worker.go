package duetime

import (
	"context"
	"errors"
	"time"
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
// stopped and the time for that is over (cause [ErrStopping]).
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

// Worker runs handlers on tasks whose time has come. Set it up with Handle and
// Use, then call Run once.
type Worker struct {
	client *Client
}

// NewWorker makes a worker. opts may be nil.
func NewWorker(c *Client, opts *WorkerOptions) *Worker {
	return &Worker{client: c}
}

// Handle says what is to be done with the tasks of a queue. Queues without a
// handler are left alone. It panics when the queue has a handler already, and
// after Run has begun.
func (w *Worker) Handle(queue string, h Handler) { w.HandleWith(queue, QueueOptions{}, h) }

// HandleWith is Handle with options.
func (w *Worker) HandleWith(queue string, opts QueueOptions, h Handler) {}

// Use puts middleware around the handlers of all queues; the first given is the
// outermost. It panics after Run has begun.
func (w *Worker) Use(middleware ...Middleware) {}

// Run claims tasks and runs their handlers until ctx ends or Stop is called, and
// then stops in good order: it claims nothing more, lets handlers finish for up
// to WorkerOptions.StopTimeout, then ends their contexts, gives back what is
// still running, so that other workers get it at once with nothing counted, and
// returns nil.
//
// Trouble with the store does not end it: it is logged, and tried again for ever.
// The error says what was set up wrongly, or that the store was closed.
func (w *Worker) Run(ctx context.Context) error { return errors.New("duetime: not yet built") }

// Stop begins to stop the worker, as the end of Run's context does, and returns
// at once. A second call, or one after the context has ended, means now: it ends
// the handlers' contexts without waiting any longer.
func (w *Worker) Stop() {}
