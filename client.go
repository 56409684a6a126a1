package duetime

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/duetime/duetime/internal/batch"
	"github.com/duetime/duetime/internal/clock"
	"github.com/duetime/duetime/internal/dispatch"
	"github.com/duetime/duetime/store"
)

// ClientOptions change what a client does. The zero value is right.
type ClientOptions struct {
	Logger *slog.Logger // nil: slog.Default()
	Hooks  *Hooks       // nil: none
}

// Client schedules tasks, and looks after them and their queues. It is safe for
// use by any number of goroutines at once; calls that are made at the same time
// go to the store together, which is what makes them cheap.
type Client struct {
	store      store.Store
	clock      clock.Clock
	dispatcher *dispatch.Dispatcher // of all its workers
	logger     *slog.Logger
	hooks      Hooks
}

// NewClient makes a client of an open store, such as one of package diskstore.
// The client takes the store over: [Client.Close] closes it. opts may be nil.
func NewClient(st store.Store, opts *ClientOptions) *Client {
	if opts == nil {
		opts = new(ClientOptions)
	}
	c := &Client{store: batch.Wrap(st), clock: clock.New(), logger: cmp.Or(opts.Logger, slog.Default())}
	c.dispatcher = dispatch.New(c.store, &dispatch.Options{Clock: c.clock, Logger: c.logger})
	if opts.Hooks != nil {
		c.hooks = *opts.Hooks
	}
	return c
}

// Close stops what the client runs, and closes its store. Stop the client's
// workers first. Calls after it return ErrClosed; closing twice is allowed.
func (c *Client) Close() error {
	c.dispatcher.Close()
	return c.store.Close()
}

// Capabilities says what the client's store can do, and how durable it is.
func (c *Client) Capabilities() store.Capabilities { return c.store.Capabilities() }

// Scheduled is what became of a task that was to be scheduled.
type Scheduled struct {
	ID       string    // the task's own, or the one made up for it
	Outcome  Outcome   // OutcomeCreated, OutcomeExists, OutcomeReplaced; OutcomeRefused with Err
	Due      time.Time // when it will run; of the old task where Outcome is OutcomeExists
	Existing *Task     // the task that is there, where Outcome is OutcomeExists
	Err      error     // why the task was refused: an *InputError, or wraps ErrFull
}

// Schedule stores a task, to be run once its time has come. When it returns
// without an error the task is safe, as far as the store's durability goes (with
// the defaults: kill -9 and power loss).
//
// The error is an *InputError where the task is wrong, wraps ErrFull where there
// was no room, and otherwise means that it is not known whether the task was
// stored. Then repeat the call with the ID in the answer, which is set even so:
// if the task was stored, the outcome is OutcomeExists.
//
// A name for a queue is 1 to 100 of the characters A-Z a-z 0-9 . _ : - of which
// the first is a letter or a digit. Queues need no creating.
func (c *Client) Schedule(ctx context.Context, queue string, task NewTask) (Scheduled, error) {
	record := task.record(queue)
	results, err := c.store.Schedule(ctx, []store.NewTask{record})
	if err != nil {
		return Scheduled{ID: record.ID}, opError("schedule", queue, record.ID, err)
	}
	var s Scheduled
	c.scheduled(&s, &record, &results[0])
	return s, s.Err
}

// ScheduleMany stores many tasks of one queue, as Schedule does, in as few calls
// of the store as can be. It returns one answer for each, in order; look at
// their Err. Tasks of one call stand each alone: one that is refused changes
// nothing about the others.
//
// After an error the tasks whose answer has OutcomeRefused with that same error
// may or may not have been stored; all answers have their ID, for repeating.
func (c *Client) ScheduleMany(ctx context.Context, queue string, tasks []NewTask) ([]Scheduled, error) {
	answers := make([]Scheduled, len(tasks))
	records := make([]store.NewTask, len(tasks))
	for i := range tasks {
		records[i] = tasks[i].record(queue)
		answers[i].ID = records[i].ID
	}
	for from := 0; from < len(records); {
		to, size := from, 0
		for to < len(records) && to-from < store.MaxBatch && (to == from || size+len(records[to].Payload) <= maxCallBytes) {
			size += len(records[to].Payload)
			to++
		}
		results, err := c.store.Schedule(ctx, records[from:to])
		if err != nil {
			err = opError("schedule", queue, "", err)
			for i := from; i < len(answers); i++ {
				answers[i].Err = err
			}
			return answers, err
		}
		for i := range results {
			c.scheduled(&answers[from+i], &records[from+i], &results[i])
		}
		from = to
	}
	return answers, nil
}

// maxCallBytes bounds the payloads in one call, for the sake of stores that hold
// a whole call in memory or send it in one message.
const maxCallBytes = 8 << 20

func (c *Client) scheduled(s *Scheduled, record *store.NewTask, r *store.Result) {
	s.ID, s.Outcome, s.Due, s.Existing = record.ID, r.Outcome, r.Due, taskOf(r.Task)
	if r.Outcome == store.Exists && r.Task != nil {
		s.Due = r.Task.Due
	}
	if r.Outcome == store.Refused {
		s.Err = opError("schedule", record.Queue, record.ID, r.Err)
	}
	if c.hooks.Scheduled != nil {
		c.hooks.Scheduled(record.Queue, s)
	}
}

// Cancel removes a task that is not running. Once it returns nil, the task will
// never run, whatever was on its way. The error wraps ErrRunning where a worker
// has it, and ErrNotFound where the queue has no such task: it was done or
// cancelled before.
func (c *Client) Cancel(ctx context.Context, queue, id string) error {
	return c.cancel(ctx, queue, id, false)
}

// CancelRunning is Cancel for tasks that may be running: their handlers' contexts
// end with ErrLeaseLost as soon as their worker hears of it, by a third of the
// lease at the latest, and whatever the handler returns, the task never runs
// again. What the handler has done by then is done.
func (c *Client) CancelRunning(ctx context.Context, queue, id string) error {
	return c.cancel(ctx, queue, id, true)
}

func (c *Client) cancel(ctx context.Context, queue, id string, force bool) error {
	results, err := c.store.Cancel(ctx, []store.CancelRequest{{Queue: queue, ID: id, Force: force}})
	if err == nil {
		err = outcomeError(&results[0])
	}
	return opError("cancel", queue, id, err)
}

// Reschedule gives a task that is not running another time, earlier or later:
// after a delay from now by the store's clock. It returns the new due time. The
// error wraps ErrRunning where a worker has the task, and ErrNotFound where the
// queue has no such task or it is dead.
func (c *Client) Reschedule(ctx context.Context, queue, id string, delay time.Duration) (time.Time, error) {
	return c.reschedule(ctx, store.RescheduleRequest{Queue: queue, ID: id, Delay: delay})
}

// RescheduleAt is Reschedule to an instant; one in the past means now.
func (c *Client) RescheduleAt(ctx context.Context, queue, id string, due time.Time) (time.Time, error) {
	return c.reschedule(ctx, store.RescheduleRequest{Queue: queue, ID: id, Due: due})
}

func (c *Client) reschedule(ctx context.Context, req store.RescheduleRequest) (time.Time, error) {
	results, err := c.store.Reschedule(ctx, []store.RescheduleRequest{req})
	if err == nil {
		err = outcomeError(&results[0])
	}
	if err != nil {
		return time.Time{}, opError("reschedule", req.Queue, req.ID, err)
	}
	return results[0].Due, nil
}

// Get looks a task up. The error wraps ErrNotFound where the queue has no such
// task.
func (c *Client) Get(ctx context.Context, queue, id string) (*Task, error) {
	results, err := c.store.Get(ctx, []store.Key{{Queue: queue, ID: id}})
	if err == nil {
		err = outcomeError(&results[0])
	}
	if err != nil {
		return nil, opError("get", queue, id, err)
	}
	return taskOf(results[0].Task), nil
}

// outcomeError is the error for an outcome that means that nothing was done.
func outcomeError(r *store.Result) error {
	switch r.Outcome {
	case store.Refused:
		return r.Err
	case store.NotFound:
		return ErrNotFound
	case store.Leased:
		return ErrRunning
	}
	return nil
}

// opError says which operation and which task an error is about: once, here.
func opError(op, queue, id string, err error) error {
	switch {
	case err == nil:
		return nil
	case queue == "" && id == "":
		return fmt.Errorf("duetime: %s: %w", op, err)
	case id == "":
		return fmt.Errorf("duetime: %s in queue %q: %w", op, queue, err)
	}
	return fmt.Errorf("duetime: %s %q in queue %q: %w", op, id, queue, err)
}

// newID makes a UUIDv7. The milliseconds are followed by what is finer, so that
// ids that are made one after the other are mostly in order; the other 62 bits
// are random. Go's own generator, seeded by the system, does for names.
func newID() string {
	now := uint64(time.Now().UnixNano())
	ms := now / 1e6
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:], ms<<16|0x7000|now%1e6>>8)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id.String()
}
