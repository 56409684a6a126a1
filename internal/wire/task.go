package wire

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

// Duration and Time are as people write them; see package timetext.
type (
	Duration string
	Time     string
)

// NewTask is a task to be scheduled.
type NewTask struct {
	Queue         string            `json:"queue,omitzero" doc:"In /v1/batch/schedule only: the queue." example:"orders"`
	ID            *string           `json:"id,omitzero" doc:"Your own name for the task, unique in its queue: 1 to 255 bytes of UTF-8 without control characters. Made up (a UUID of version 7) where it is not given." example:"order-1001"`
	Payload       jsontext.Value    `json:"payload,omitzero" doc:"Any JSON, up to the store's limit (1 MiB). It comes back byte for byte, less the white space outside strings." example:"{\"amount\":12}"`
	PayloadBase64 []byte            `json:"payload_base64,omitzero" doc:"The payload as base64, where it is not JSON."`
	Delay         *Duration         `json:"delay,omitzero" doc:"Due after this time, by the store's clock: a Go duration (30m, 1h30m, 250ms) or an ISO 8601 one (PT30M). Neither delay nor due_at means now." example:"30m"`
	DueAt         *Time             `json:"due_at,omitzero" doc:"Due at this time: RFC 3339 with zone, from 1970 to 9999. A time in the past means now." example:"2030-01-31T07:00:00+08:00"`
	MaxAttempts   int               `json:"max_attempts,omitzero" doc:"How often it may be tried; 0: as the queue's settings say."`
	Headers       map[string]string `json:"headers,omitzero" doc:"Short texts that travel with the payload, 16 KiB together."`
	OnConflict    *string           `json:"on_conflict,omitzero" enum:"keep,replace" doc:"What to do where a live task has this id: keep it (the default; safe to repeat) or replace it."`
}

// Store checks what can not be said in a record of package store, and makes one.
// The error is a *store.InputError.
func (t *NewTask) Store() (store.NewTask, error) {
	n := store.NewTask{Queue: t.Queue, Headers: t.Headers, MaxAttempts: t.MaxAttempts}
	if t.ID != nil {
		n.ID = *t.ID
	}
	switch {
	case t.Payload != nil && t.PayloadBase64 != nil:
		return n, store.NewInputError("payload_base64", t.PayloadBase64, "can not be given together with payload")
	case t.Payload != nil:
		n.Payload = Compact(t.Payload)
	default:
		n.Payload = t.PayloadBase64
	}
	if t.OnConflict != nil {
		switch *t.OnConflict {
		case "keep":
		case "replace":
			n.Conflict = store.ConflictReplace
		default:
			return n, store.NewInputError("on_conflict", *t.OnConflict, "must be keep or replace")
		}
	}
	var err error
	n.Due, n.Delay, err = When(t.DueAt, t.Delay)
	return n, err
}

// When reads due_at and delay, of which at most one may be given.
func When(dueAt *Time, delay *Duration) (due time.Time, d time.Duration, err error) {
	if delay != nil {
		if d, err = timetext.Duration("delay", string(*delay)); err != nil {
			return due, d, err
		}
		if dueAt != nil {
			return due, d, store.NewInputError("delay", d, "can not be given together with due_at (%s)", *dueAt)
		}
	}
	if dueAt != nil {
		if due, err = timetext.Time("due_at", string(*dueAt)); err != nil {
			return due, d, err
		}
		if due.IsZero() { // year 1: not to be taken for "not given"
			_, err = store.DueTime(due, due.Add(1), 0)
		}
	}
	return due, d, err
}

// FromNewTask is the inverse of NewTask.Store, for tasks that passed their
// checks.
func FromNewTask(t *store.NewTask) NewTask {
	n := NewTask{Queue: t.Queue, ID: &t.ID, PayloadBase64: t.Payload, MaxAttempts: t.MaxAttempts, Headers: t.Headers}
	if t.Conflict == store.ConflictReplace {
		replace := "replace"
		n.OnConflict = &replace
	}
	n.DueAt, n.Delay = FromWhen(t.Due, t.Delay)
	return n
}

// FromWhen is the inverse of When.
func FromWhen(due time.Time, delay time.Duration) (*Time, *Duration) {
	var at *Time
	var d *Duration
	if !due.IsZero() {
		text := Time(due.UTC().Format(time.RFC3339Nano))
		at = &text
	}
	if delay != 0 {
		text := Duration(delay.String())
		d = &text
	}
	return at, d
}

// Task is a task in an answer.
type Task struct {
	Outcome       string            `json:"outcome,omitzero" doc:"What became of it, in answers to scheduling: created, exists, replaced."`
	Queue         string            `json:"queue"`
	ID            string            `json:"id"`
	State         string            `json:"state" enum:"scheduled,ready,leased,dead"`
	Payload       jsontext.Value    `json:"payload,omitzero" doc:"The payload, where it is JSON."`
	PayloadBase64 []byte            `json:"payload_base64,omitzero" doc:"The payload as base64, where it is not JSON or was asked for so."`
	Headers       map[string]string `json:"headers"`
	DueAt         Time              `json:"due_at" format:"date-time" doc:"UTC, with milliseconds."`
	CreatedAt     Time              `json:"created_at" format:"date-time"`
	Generation    int               `json:"generation" doc:"How often it was replaced."`
	Failures      int               `json:"failures" doc:"How often a worker said retry."`
	Lost          int               `json:"lost" doc:"How often a lease ran out."`
	MaxAttempts   int               `json:"max_attempts" doc:"The task's own limit; 0: as the queue's settings say."`
	LastError     string            `json:"last_error"`

	Worker     string `json:"worker,omitzero" doc:"Of a leased task: who has it."`
	LeaseUntil Time   `json:"lease_until,omitzero" format:"date-time" doc:"Of a leased task: when the lease ends."`

	Receipt   string `json:"receipt,omitzero" doc:"In answers to a claim: names the lease, for ack and the like."`
	Attempt   int    `json:"attempt,omitzero" doc:"In answers to a claim: which try this is, from 1."`
	ClaimedAt Time   `json:"claimed_at,omitzero" format:"date-time" doc:"In answers to a claim: when, by the store's clock."`
}

// Payloads says how answers show payloads.
type Payloads string

// The ways to show payloads.
const (
	PayloadAsJSON   Payloads = "json"   // as JSON where it is JSON, else as base64
	PayloadAsBase64 Payloads = "base64" // always as base64: exactly as it was given
	PayloadNone     Payloads = "none"
)

// FromTask makes an answer of a task.
func FromTask(t *store.Task, how Payloads) Task {
	w := Task{
		Queue: t.Queue, ID: t.ID, State: t.State.String(),
		DueAt: milli(t.Due), CreatedAt: milli(t.Created),
		Generation: t.Generation, Failures: t.Failures, Lost: t.Lost, MaxAttempts: t.MaxAttempts, LastError: t.LastError,
		Worker: t.Worker, LeaseUntil: milli(t.LeaseUntil),
	}
	if how == PayloadNone {
		return w
	}
	w.Headers = t.Headers
	if how == PayloadAsJSON && IsJSON(t.Payload) {
		w.Payload = jsontext.Value(t.Payload)
	} else if w.PayloadBase64 = t.Payload; t.Payload == nil {
		w.PayloadBase64 = []byte{}
	}
	return w
}

// FromLease makes an answer of a claimed task.
func FromLease(l *store.Lease, how Payloads) Task {
	w := FromTask(&l.Task, how)
	w.Receipt, w.Attempt, w.ClaimedAt = string(l.Receipt), l.Attempt(), Nano(l.ClaimedAt)
	return w
}

// Store is the inverse of FromTask.
func (w *Task) Store() (store.Task, error) {
	t := store.Task{
		Queue: w.Queue, ID: w.ID, Payload: w.PayloadBase64, Headers: w.Headers,
		Generation: w.Generation, Failures: w.Failures, Lost: w.Lost, MaxAttempts: w.MaxAttempts, LastError: w.LastError,
		Worker: w.Worker,
	}
	if w.Payload != nil {
		t.Payload = w.Payload
	}
	if len(t.Payload) == 0 {
		t.Payload = nil
	}
	if len(t.Headers) == 0 {
		t.Headers = nil
	}
	var err error
	if t.State, err = store.ParseState(w.State); err != nil {
		return t, err
	}
	return t, parseTimes([]timePair{{w.DueAt, &t.Due}, {w.CreatedAt, &t.Created}, {w.LeaseUntil, &t.LeaseUntil}})
}

// StoreLease is the inverse of FromLease.
func (w *Task) StoreLease() (store.Lease, error) {
	t, err := w.Store()
	if err != nil {
		return store.Lease{}, err
	}
	l := store.Lease{Task: t, Receipt: store.Receipt(w.Receipt)}
	return l, parseTimes([]timePair{{w.ClaimedAt, &l.ClaimedAt}})
}

type timePair struct {
	from Time
	to   *time.Time
}

func parseTimes(pairs []timePair) error {
	for _, p := range pairs {
		if p.from == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, string(p.from))
		if err != nil {
			return err
		}
		*p.to = t.UTC()
	}
	return nil
}

func milli(t time.Time) Time {
	if t.IsZero() {
		return ""
	}
	return Time(t.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// Milli writes a time with milliseconds, in UTC; the zero time is empty.
func Milli(t time.Time) Time { return milli(t) }

// Nano writes a time with all its digits, in UTC; the zero time is empty.
func Nano(t time.Time) Time {
	if t.IsZero() {
		return ""
	}
	return Time(t.UTC().Format(time.RFC3339Nano))
}
