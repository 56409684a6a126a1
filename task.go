package duetime

import (
	"time"

	"github.com/duetime/duetime/store"
)

// State is where a task is in its life.
type State = store.State

// The states of a task.
const (
	StateScheduled = store.StateScheduled // its time is to come
	StateReady     = store.StateReady     // its time has come, and no worker has it yet
	StateLeased    = store.StateLeased    // a worker has it
	StateDead      = store.StateDead      // out of attempts or buried; kept for a person to look at
)

// Outcome is what became of a request for one task.
type Outcome = store.Outcome

// Outcomes of Schedule.
const (
	OutcomeRefused  = store.Refused  // Scheduled.Err says why; nothing was stored
	OutcomeCreated  = store.Created  // stored
	OutcomeExists   = store.Exists   // a task with this id was there and was left alone
	OutcomeReplaced = store.Replaced // a task with this id was there and gave way
)

// Outcomes of a run, as hooks see them.
const (
	OutcomeAcked    = store.Acked    // done and gone
	OutcomeRetrying = store.Retrying // failed, comes back
	OutcomeSnoozed  = store.Snoozed  // comes back, not failed
	OutcomeDead     = store.Dead     // out of attempts, or buried by its handler
	OutcomeReleased = store.Released // given back by a worker that stops
	OutcomeStale    = store.Stale    // the lease was lost; what the handler said changed nothing
)

// NewTask is what is to be done, and when. Its zero value is a legal task: due
// now, with an id made up and no payload.
type NewTask struct {
	// ID names the task in its queue: 1 to 255 bytes of UTF-8 without control
	// characters, such as an order's number. Cancel, Reschedule and Get find the
	// task by it, and a second Schedule with the same id changes nothing, so that
	// Schedule can be repeated blindly. Where it is empty, a UUIDv7 is made up.
	ID string

	// Payload is handed to the handler byte for byte: up to 1 MiB by default.
	Payload []byte

	// Headers go with the payload, such as a trace context: up to 16 KiB of
	// names and values together.
	Headers map[string]string

	// Delay is counted from when the store gets the task, by the store's clock.
	// Due is an instant; one in the past means now. Give one of them, or neither
	// for now. Both have millisecond precision: what is finer is rounded up.
	Delay time.Duration
	Due   time.Time

	// MaxAttempts is after how many failures the task is dead, up to a million;
	// 0 takes the queue's setting (25 unless changed).
	MaxAttempts int

	// Replace puts this task in the place of one with the same id, even of one
	// that is running, whose worker then loses its lease. Otherwise the old one
	// stays.
	Replace bool
}

// Task is a task as the store has it. Handlers get one each that nobody else
// uses; all times are by the store's clock, in UTC.
type Task struct {
	Queue   string
	ID      string
	Payload []byte            // nil where it is empty, or was not asked for in a list
	Headers map[string]string // nil where there are none, or they were not asked for in a list

	State   State
	Due     time.Time // when it may run from
	Created time.Time // when it was scheduled

	Attempt     int    // which try this is, or the next will be, from 1: Failures + Lost + 1
	Failures    int    // how often a handler failed
	Lost        int    // how often a lease ran out, because its worker died or was cut off
	MaxAttempts int    // the task's own; 0: the queue's setting
	Generation  int    // how often it was replaced
	LastError   string // why the last attempt failed; empty where none has

	// Of a running task.
	Worker     string    // who has it
	LeaseUntil time.Time // until when, unless the lease is extended
	ClaimedAt  time.Time // when it was handed out; known in handlers and hooks only
}

// Lateness is how long after its due time the task was handed out, by the store's
// clock. It is 0 for tasks that were not handed out to this process.
func (t *Task) Lateness() time.Duration {
	if t.ClaimedAt.IsZero() {
		return 0
	}
	return t.ClaimedAt.Sub(t.Due)
}

func (t *Task) fill(s *store.Task) {
	*t = Task{
		Queue:       s.Queue,
		ID:          s.ID,
		Payload:     s.Payload,
		Headers:     s.Headers,
		State:       s.State,
		Due:         s.Due,
		Created:     s.Created,
		Attempt:     s.Attempt(),
		Failures:    s.Failures,
		Lost:        s.Lost,
		MaxAttempts: s.MaxAttempts,
		Generation:  s.Generation,
		LastError:   s.LastError,
		Worker:      s.Worker,
		LeaseUntil:  s.LeaseUntil,
	}
}

func taskOf(s *store.Task) *Task {
	if s == nil {
		return nil
	}
	t := new(Task)
	t.fill(s)
	return t
}

func (t *NewTask) record(queue string) store.NewTask {
	n := store.NewTask{
		Queue:       queue,
		ID:          t.ID,
		Payload:     t.Payload,
		Headers:     t.Headers,
		Due:         t.Due,
		Delay:       t.Delay,
		MaxAttempts: t.MaxAttempts,
	}
	if n.ID == "" {
		n.ID, n.NewID = newID(), true
	}
	if t.Replace {
		n.Conflict = store.ConflictReplace
	}
	return n
}
