// Package store is the contract between duetime and the places where tasks are
// kept. A program that uses duetime never calls it directly: it opens a store,
// gives it to the root package, and uses Client and Worker. A store's author
// implements [Store] and proves it with package storetest.
//
// The words are those of docs/contract.md. In short: a task is scheduled into a
// queue under an id, becomes ready when its due time has passed, is leased to a
// worker by Claim, and ends when the worker settles the lease.
//
//	Schedule ──► scheduled ──(due passes)──► ready ──Claim──► leased ──Ack──► gone
//	                ▲  ▲                        ▲                │
//	                │  └── Retry, Snooze ───────┼────────────────┤
//	                │                           └ Release, expiry┤
//	                └── Redrive ◄── dead ◄── out of attempts, Bury
//
// # Batches
//
// Every operation on tasks takes a batch and returns one result per item, in
// the batch's order. The items are carried out in order, as if one after the
// other, so that a later item sees what an earlier one did. A batch is no
// transaction: each item stands alone, and one that is refused changes nothing
// about the others. A problem with one item is that item's result; an error
// return means that the outcome of the whole call is unknown (the connection
// was lost, the context ended, the store broke). Every operation is safe to
// repeat. An empty batch does nothing and returns no results.
//
// # Time
//
// The store's clock is the only clock. Due times, lease deadlines and creation
// times have millisecond precision; what is finer is rounded up, so that no
// task is early by the rounding, but for a due time of now, which is rounded down,
// so that the task can be handed out at once. A time.Time that a store returns is in UTC.
//
// # Concurrency
//
// A Store is safe for use by any number of goroutines. It keeps no reference to
// a slice or map that it was given after the call returns, and what it returns
// belongs to the caller.
package store

import (
	"context"
	"time"
)

// Store keeps tasks. See the package comment for what all methods have in
// common.
type Store interface {
	// Schedule stores tasks. Outcomes: Created, Exists (with Result.Task, the
	// task that is there), Replaced, Refused.
	//
	// A live task is one that is scheduled, ready or leased. Where no live task
	// has this queue and id, the task is Created; a dead one is overwritten.
	// Where there is one, ConflictKeep changes nothing and says Exists, and
	// ConflictReplace puts the new task in its place, with Generation one
	// higher, no failures, nothing lost, and any lease that was out stale.
	//
	// When Schedule returns, the tasks are as durable as the store's setting
	// promises, those that were there already included: Exists is as good a
	// promise as Created.
	Schedule(ctx context.Context, tasks []NewTask) ([]Result, error)

	// Cancel removes tasks that are not leased, dead ones included, so that a
	// later Redrive can not bring them back; with CancelRequest.Force leased
	// ones too, whose receipts become stale. Outcomes: Cancelled, Leased
	// (nothing changed), NotFound, Refused. After Cancelled the task is never
	// handed out again, whatever was in flight and whatever crashes.
	Cancel(ctx context.Context, tasks []CancelRequest) ([]Result, error)

	// Reschedule gives scheduled or ready tasks a new due time. Outcomes:
	// Rescheduled (with Result.Due), Leased (nothing changed), NotFound (dead
	// tasks too: those are for Redrive), Refused. It is as durable as Schedule.
	Reschedule(ctx context.Context, tasks []RescheduleRequest) ([]Result, error)

	// Claim hands out tasks that are due by the store's clock, oldest due
	// first, then oldest scheduled, never early. The lease of each starts now.
	// No two claims get the same task unless its lease ended in between. A
	// request may get fewer than Max although more are ready (a bound on the
	// bytes of one answer); ClaimResult.Next then is not after ClaimResult.Now.
	// Nothing being ready is an empty result, not an error.
	Claim(ctx context.Context, requests []ClaimRequest) ([]ClaimResult, error)

	// Settle ends or extends leases; the Action of each item says how.
	// Outcomes: Acked, Retrying or Dead, Snoozed, Dead for Bury, Released,
	// Extended, each as its Action says; Stale where the receipt is not the
	// newest of its task, or its lease has run out, or the task is gone:
	// then nothing has changed; Refused (nothing changed, the lease goes on).
	Settle(ctx context.Context, settlements []Settlement) ([]Result, error)

	// Get looks tasks up by id. Outcomes: Found (with Result.Task), NotFound,
	// Refused.
	Get(ctx context.Context, keys []Key) ([]Result, error)

	// List returns one page of a queue's tasks in one state, in order of due
	// time, then of scheduling. A task that is there and unchanged from the
	// first page to the last is in exactly one page. The error is an
	// *InputError where the request is wrong, a damaged cursor included.
	List(ctx context.Context, request ListRequest) (ListPage, error)

	// Queues returns the names of all queues that were ever scheduled into or
	// whose settings were changed, in byte order.
	Queues(ctx context.Context) ([]string, error)

	// Stats counts a queue's tasks. It does not scan: its cost does not grow
	// with the number of tasks. A queue that does not exist has zeros.
	Stats(ctx context.Context, queue string) (Stats, error)

	// Settings returns a queue's settings: DefaultSettings, with Version 0,
	// where nobody changed them or the queue does not exist.
	Settings(ctx context.Context, queue string) (Settings, error)

	// PutSettings replaces a queue's settings, creating the queue if need be,
	// and returns them with their new Version. Settings.Version must be the
	// version they were read at; otherwise nothing changes and the error is
	// ErrVersion. Wrong settings are an *InputError. All who use the store see
	// the change within a second.
	PutSettings(ctx context.Context, queue string, settings Settings) (Settings, error)

	// Redrive brings dead tasks back: no failures, nothing lost, due now, in
	// the order in which they were scheduled. It returns how many. Large numbers are moved in
	// slices, so that an error may come after some were moved.
	Redrive(ctx context.Context, request RedriveRequest) (int, error)

	// Purge removes all of a queue's tasks that are in one state, and returns
	// how many. Receipts of leased ones become stale. It works in slices, as
	// Redrive does.
	Purge(ctx context.Context, queue string, state State) (int, error)

	// Wake returns a channel that ticks when something in the queue may have
	// become claimable earlier than a past ClaimResult.Next said: a task
	// scheduled, moved, released or redriven to before it, or claiming resumed.
	// Ticks may be lost, merged or false; they exist so that nobody needs to
	// poll, and correctness never depends on them. Each call has a channel of
	// its own. The caller calls stop when done; the channel is not closed.
	Wake(queue string) (ticks <-chan struct{}, stop func())

	// Capabilities says what this store can do. It does not change while the
	// store is open.
	Capabilities() Capabilities

	// Close waits for calls in flight, makes everything durable and frees what
	// the store holds. Calls after it return ErrClosed. Closing twice is
	// allowed.
	Close() error
}

// Capabilities names a store and what not every store can do. An operation that
// a store lacks returns an error that wraps ErrUnsupported and names it.
type Capabilities struct {
	Name       string // such as "disk", for messages and metrics
	Durability string // in plain words, what has been kept when Schedule returns
	MaxPayload int    // bytes

	Cancel     bool
	Reschedule bool
	Get        bool
	List       bool
	UniqueIDs  bool // a second Schedule with a live task's id is told apart
	Settings   bool
	Release    bool // the release setting is honoured
	Redrive    bool
	Purge      bool // of every state; Purge of dead tasks works everywhere

	// Ahead is how far ahead it is worth while to claim, where claims take long
	// enough to make tasks late: see ClaimRequest. 0: they do not, or the store's
	// clock is not one that goes by itself.
	Ahead time.Duration

	// What a store may lack though it has every operation. A message broker as a
	// store lacks these; all others keep the whole contract.

	// Unordered: Claim hands out in the order in which tasks came due, as near as
	// the store can, and not exactly by due time and then by scheduling.
	Unordered bool
	// Uncounted: Stats does not know Scheduled, OldestDue and NextDue, counts as
	// Leased what this process has leased, and ClaimResult.Next does not know
	// what is scheduled.
	Uncounted bool
	// ProcessLeases: leases end with the process that claimed, at once and
	// counted as lost, and receipts are good in that process alone.
	ProcessLeases bool
}

// Unwrapper is what a store that wraps another one has, so that [As] sees
// through it.
type Unwrapper interface{ Unwrap() Store }

// As finds the optional interface T on s or on a store that s wraps.
func As[T any](s Store) (T, bool) {
	for s != nil {
		if t, ok := s.(T); ok {
			return t, true
		}
		u, ok := s.(Unwrapper)
		if !ok {
			break
		}
		s = u.Unwrap()
	}
	var zero T
	return zero, false
}
