package duetime

import (
	"errors"
	"time"

	"github.com/duetime/duetime/store"
)

// Errors about one task.
var (
	// ErrNotFound: the queue has no such task. It has been done, was cancelled,
	// or never was.
	ErrNotFound = errors.New("task not found")
	// ErrRunning: a worker has the task, so that it is too late to cancel or
	// reschedule it.
	ErrRunning = errors.New("task is running")
)

// Causes with which a handler's context ends; see [context.Cause].
var (
	// ErrLeaseLost: the task is no longer this worker's: it was cancelled by
	// force or replaced, or its lease could not be extended in time. Another
	// worker may have it already, and what this handler returns changes nothing.
	ErrLeaseLost = errors.New("lease lost")
	// ErrStopping: the worker is stopping and has waited long enough. The task
	// goes to another worker, with nothing counted against it.
	ErrStopping = errors.New("worker is stopping")
)

// Errors of the store, to be found with [errors.Is].
var (
	// ErrFull: the store has no room. Nothing was stored; try again later.
	ErrFull = store.ErrFull
	// ErrUnsupported: this kind of store can not do it at all.
	ErrUnsupported = store.ErrUnsupported
	// ErrVersion: the settings were changed by someone else in between.
	ErrVersion = store.ErrVersion
	// ErrClosed: the client or its store was closed.
	ErrClosed = store.ErrClosed
)

// InputError says which field was wrong, its value, and the limit it broke.
// Trying again does not help. Find it with [errors.As].
type InputError = store.InputError

// Dead is for handlers to return: the task is buried at once, however many
// attempts it has left, with err's text as its last error. It stays in the store
// until someone looks at it, and can be brought back with [Client.Redrive].
func Dead(err error) error { return &verdict{action: store.Bury, err: err} }

// RetryIn is for handlers to return: like any error it counts as a failed
// attempt, but the next one comes after the delay d instead of the queue's
// backoff. A negative d counts as 0. Where err is nil the task keeps a text that
// says that its handler asked for another try.
func RetryIn(d time.Duration, err error) error {
	return &verdict{action: store.Retry, delay: max(d, 0), err: err}
}

// Snooze is for handlers to return: the task comes back after the delay d with
// nothing counted against it. It is for tasks that find that it is not yet time,
// not for errors. A negative d counts as 0.
func Snooze(d time.Duration) error {
	return &verdict{action: store.Snooze, delay: max(d, 0)}
}

// verdict is an error that says what is to be done with the task. It is found by
// errors.As, so that handlers and middleware may wrap it.
type verdict struct {
	action store.Action
	delay  time.Duration
	err    error
}

func (v *verdict) Error() string {
	switch {
	case v.err != nil:
		return v.err.Error()
	case v.action == store.Snooze:
		return "snoozed for " + v.delay.String()
	case v.action == store.Bury:
		return "buried by its handler"
	}
	return "another try was asked for by its handler"
}

func (v *verdict) Unwrap() error { return v.err }
