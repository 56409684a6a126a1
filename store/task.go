package store

import "time"

// State is where a task is in its life.
type State uint8

const (
	// StateScheduled: the due time is to come.
	StateScheduled State = iota + 1
	// StateReady: the due time has passed. It is not stored: a scheduled task is
	// ready from its due time on. A paused queue or its release setting may
	// still hold a ready task back.
	StateReady
	// StateLeased: a worker has it.
	StateLeased
	// StateDead: out of attempts or buried; kept for a person to look at.
	StateDead
)

var stateNames = [...]string{StateScheduled: "scheduled", StateReady: "ready", StateLeased: "leased", StateDead: "dead"}

// States lists all states in the order in which people want to see them.
func States() []State { return []State{StateLeased, StateReady, StateScheduled, StateDead} }

func (s State) String() string {
	if int(s) < len(stateNames) && s != 0 {
		return stateNames[s]
	}
	return "unknown"
}

// ParseState is the inverse of State.String. The error is an *InputError.
func ParseState(name string) (State, error) {
	for s, n := range stateNames {
		if n == name && name != "" {
			return State(s), nil
		}
	}
	return 0, inputError("state", name, "must be scheduled, ready, leased or dead")
}

// Conflict says what Schedule does when a live task has the same queue and id.
type Conflict uint8

const (
	ConflictKeep    Conflict = iota // leave the old one: outcome Exists
	ConflictReplace                 // put the new one in its place: outcome Replaced
)

// Key names a task.
type Key struct{ Queue, ID string }

// NewTask is a task to be scheduled.
type NewTask struct {
	Queue   string            // required
	ID      string            // required here; the root package makes one up where the user gave none
	Payload []byte            // opaque
	Headers map[string]string // may be nil

	// Due or Delay, not both. Delay is added to the store's clock. Neither means
	// now. A Due in the past means now too, but keeps its place in the order and
	// its lateness.
	Due   time.Time
	Delay time.Duration

	MaxAttempts int // 0: the queue's setting
	Conflict    Conflict

	// NewID: the id was made up for this very call, so that no task has it, and a
	// store need not look. A call that is repeated must not say so again.
	NewID bool
}

// Task is a task as the store has it.
type Task struct {
	Queue, ID string
	State     State
	Payload   []byte // nil where the caller asked for no payloads, or it is empty
	Headers   map[string]string

	Due     time.Time
	Created time.Time // when it was scheduled, by the store's clock

	Generation  int // how often Schedule replaced it
	Failures    int // how often a worker said Retry
	Lost        int // how often a lease ran out
	MaxAttempts int // the task's own; 0: the queue's setting
	LastError   string

	// Of a leased task only.
	Worker     string
	LeaseUntil time.Time
}

// Attempt is which try the task is in, or which comes next, from 1.
func (t *Task) Attempt() int { return t.Failures + t.Lost + 1 }

// Lease is a claimed task.
type Lease struct {
	Task
	Receipt   Receipt   // empty where the claim was at most once
	ClaimedAt time.Time // by the store's clock, with all the precision it has; before Due with ClaimRequest.Ahead alone
}

// Result is what became of one item of a batch.
type Result struct {
	Outcome Outcome
	Err     error     // why, where Outcome is Refused: an *InputError, or wraps ErrFull
	Task    *Task     // where Outcome is Exists or Found
	Due     time.Time // the due time now, where it was set: Created, Replaced, Rescheduled, Retrying, Snoozed
	At      time.Time // when, by the store's clock: Created, Replaced (Task.Created), Extended (the new deadline)
}

// CancelRequest asks for a task to be cancelled.
type CancelRequest struct {
	Queue, ID string
	Force     bool // revoke a lease
}

// RescheduleRequest asks for a new due time. Due, Delay: as in NewTask.
type RescheduleRequest struct {
	Queue, ID string
	Due       time.Time
	Delay     time.Duration
}

// ClaimRequest asks for tasks that are due, on behalf of one worker.
type ClaimRequest struct {
	Queue  string
	Max    int           // 1 to MaxBatch
	Lease  time.Duration // MinLease to MaxLease; 0: the queue's setting
	Worker string        // a name for people, may be empty

	// AtMostOnce removes tasks as they are handed out, for those who prefer
	// loss to repetition. There is no lease and no receipt then.
	AtMostOnce bool

	// Ahead, 0 to MaxAhead, lets a store that says so in its Capabilities lease
	// tasks that come due within it, too: for a caller that keeps them until their
	// due time, so that what a claim costs does not make them late. Their leases
	// last for as long as was asked for after that. Other stores, claims at most once and queues that
	// hand out otherwise than as tasks come due take it to be 0.
	Ahead time.Duration
}

// ClaimResult is what one ClaimRequest got.
type ClaimResult struct {
	Tasks []Lease

	// Next is the earliest instant, by the store's clock, at which another
	// claim might get something, as far as the store knows now: the next due
	// time as the release setting lets it out, or the end of a lease. Not after
	// Now where more is ready already. Zero where nothing is known.
	Next time.Time
	Now  time.Time // the store's clock

	Err error // an *InputError where the request was wrong; then nothing was claimed
}

// Action is what a settlement does with a lease.
type Action uint8

const (
	// Ack: done; the task is gone.
	Ack Action = iota + 1
	// Retry: it failed. Failures goes up by one, and the task is due again
	// after the delay, or dead where Failures has reached its limit.
	Retry
	// Snooze: the handler wants to look again after the delay. Nothing is
	// counted.
	Snooze
	// Bury: dead at once.
	Bury
	// Release: ready again at its old due time, nothing counted: a worker is
	// shutting down.
	Release
	// Extend: the lease ends Settlement.Lease from now.
	Extend
)

var actionNames = [...]string{Ack: "ack", Retry: "retry", Snooze: "snooze", Bury: "bury", Release: "release", Extend: "extend"}

func (a Action) String() string {
	if int(a) < len(actionNames) && a != 0 {
		return actionNames[a]
	}
	return "unknown"
}

// Settlement says what to do with one lease.
type Settlement struct {
	Receipt Receipt
	Action  Action

	Delay   time.Duration // Retry, Snooze
	Backoff bool          // Retry: the store takes the delay from the queue's backoff; Delay must be 0
	Error   string        // Retry, Bury: why; cleaned and cut, never refused
	Lease   time.Duration // Extend: MinLease to MaxLease; 0: the queue's setting
}

// ListRequest asks for one page of tasks.
type ListRequest struct {
	Queue    string
	State    State  // required
	Cursor   string // empty for the first page, then ListPage.Cursor of the page before
	Limit    int    // 1 to MaxList; 0: 100
	Payloads bool   // with payloads and headers
}

// ListPage is one page of tasks. Cursor is empty on the last page.
type ListPage struct {
	Tasks  []Task
	Cursor string
}

// Stats counts a queue's tasks.
type Stats struct {
	Scheduled, Ready, Leased, Dead int64

	OldestDue time.Time // of the ready tasks; zero where there is none
	NextDue   time.Time // of the scheduled tasks; zero where there is none
}

// RedriveRequest names the dead tasks to bring back: All, or IDs. IDs that are
// not those of dead tasks are passed over.
type RedriveRequest struct {
	Queue string
	IDs   []string
	All   bool
}

// Outcome is what became of one item.
type Outcome uint8

const (
	Refused Outcome = iota // Result.Err says why; nothing changed

	Created
	Exists
	Replaced

	Cancelled
	Rescheduled
	Leased // it is running: too late
	NotFound
	Found

	Acked
	Retrying
	Snoozed
	Dead
	Released
	Extended
	Stale // the receipt is not, or no longer, valid; nothing changed
)

var outcomeNames = [...]string{
	"refused", "created", "exists", "replaced", "cancelled", "rescheduled", "leased",
	"not_found", "found", "acked", "retrying", "snoozed", "dead", "released", "extended", "stale",
}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// ParseOutcome is the inverse of Outcome.String.
func ParseOutcome(name string) (Outcome, bool) {
	for o, n := range outcomeNames {
		if n == name {
			return Outcome(o), true
		}
	}
	return 0, false
}
