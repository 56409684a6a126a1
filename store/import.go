package store

import (
	"context"
	"errors"
	"math"
	"time"
)

// Importer is what a store has that can take tasks in as they were elsewhere,
// with their counters, the moment they were first scheduled at, and dead ones as
// dead: for moving from one store to another. Find it with [ImporterOf].
type Importer interface {
	// Import stores tasks as they are: queue, id, payload, headers, due time,
	// Created, Generation, Failures, Lost, MaxAttempts and LastError (cleaned and
	// cut). State is StateDead for a dead task, and StateScheduled or StateReady
	// for one that waits, of which its due time says which it is. Outcomes:
	// Created (with Result.Due, and Task.Created as Result.At), Exists (with
	// Result.Task: a task with that queue and id is there, live or dead, and
	// nothing changed), Refused (what is wrong, a leased task included, and
	// ErrFull as for Schedule).
	//
	// A task is handed out no earlier than it is due; tasks that are due at the
	// same time are handed out in the order in which they were imported, after
	// those that were there before. Of two items with the same queue and id the
	// first is stored. Import is as durable as Schedule, creates queues as it
	// does, and takes up to MaxBatch items. A batch of none changes nothing, and
	// returns an error that wraps ErrUnsupported where the store, or one that it
	// stands for, can not import.
	Import(ctx context.Context, tasks []Task) ([]Result, error)
}

// ImporterOf finds the Importer of a store or of one that it wraps, and asks it
// whether it can import. Where it can not, the error wraps ErrUnsupported.
func ImporterOf(ctx context.Context, s Store) (Importer, error) {
	i, ok := As[Importer](s)
	if !ok {
		return nil, Unsupported(s.Capabilities().Name, "import")
	}
	if _, err := i.Import(ctx, nil); err != nil {
		return nil, err
	}
	return i, nil
}

// CanImport is ImporterOf for those who only want to know: false where the store
// says that it can not, an error where it does not say.
func CanImport(ctx context.Context, s Store) (bool, error) {
	_, err := ImporterOf(ctx, s)
	if errors.Is(err, ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// CheckImport says what is wrong with a task that is to be imported, and makes it
// as it is to be stored: times in UTC and rounded up to the millisecond, the error
// text cleaned, the state StateScheduled or StateDead. maxPayload is in bytes. The
// payload and headers are still the caller's. The error is an *InputError.
func (t *Task) CheckImport(maxPayload int) (Task, error) {
	n := NewTask{Queue: t.Queue, ID: t.ID, Payload: t.Payload, Headers: t.Headers, MaxAttempts: t.MaxAttempts}
	if _, err := n.Check(MinTime, maxPayload); err != nil {
		return Task{}, err
	}
	as := Task{
		Queue: t.Queue, ID: t.ID, State: StateScheduled, Payload: t.Payload, Headers: t.Headers,
		Generation: t.Generation, Failures: t.Failures, Lost: t.Lost, MaxAttempts: t.MaxAttempts, LastError: CleanError(t.LastError),
	}
	switch t.State {
	case StateScheduled, StateReady:
	case StateDead:
		as.State = StateDead
	default:
		return Task{}, inputError("state", t.State.String(), "must be scheduled, ready or dead: a task that is running can not be imported")
	}
	for _, at := range []struct {
		field    string
		from, to *time.Time
	}{{"due_at", &t.Due, &as.Due}, {"created_at", &t.Created, &as.Created}} {
		if at.from.Before(MinTime) || at.from.After(MaxTime) {
			return Task{}, inputError(at.field, at.from.Format(time.RFC3339Nano), "must be %s to %s", MinTime.Format(time.RFC3339), MaxTime.Format(time.RFC3339Nano))
		}
		*at.to = CeilMilli(*at.from)
	}
	for _, n := range []struct {
		field string
		value int
	}{{"generation", t.Generation}, {"failures", t.Failures}, {"lost", t.Lost}} {
		if n.value < 0 || n.value > math.MaxInt32 {
			return Task{}, inputError(n.field, n.value, "must be 0 to %d", math.MaxInt32)
		}
	}
	return as, nil
}
