package wire

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

// ImportItem is a task that is to be taken in as it was elsewhere. Its fields are
// those that a task has in an answer.
type ImportItem struct {
	Queue         string            `json:"queue" example:"orders"`
	ID            string            `json:"id" example:"order-1001"`
	State         string            `json:"state,omitzero" enum:"scheduled,ready,dead" doc:"dead, or else one that waits: scheduled (the default) and ready are the same, as the due time says which it is. A leased one is refused."`
	Payload       jsontext.Value    `json:"payload,omitzero" doc:"Any JSON."`
	PayloadBase64 []byte            `json:"payload_base64,omitzero" doc:"The payload as base64, where it is not JSON."`
	Headers       map[string]string `json:"headers,omitzero"`
	DueAt         Time              `json:"due_at" example:"2030-01-31T07:00:00Z" doc:"Required. RFC 3339 with zone, from 1970 to 9999."`
	CreatedAt     Time              `json:"created_at" example:"2030-01-31T06:30:00Z" doc:"Required: when it was first scheduled."`
	Generation    int               `json:"generation,omitzero" doc:"How often it was replaced."`
	Failures      int               `json:"failures,omitzero" doc:"How often a worker said retry."`
	Lost          int               `json:"lost,omitzero" doc:"How often a lease ran out."`
	MaxAttempts   int               `json:"max_attempts,omitzero" doc:"The task's own limit; 0: as the queue's settings say."`
	LastError     string            `json:"last_error,omitzero"`
}

// Store makes a record of package store. The error is a *store.InputError.
func (t *ImportItem) Store() (store.Task, error) {
	as := store.Task{
		Queue: t.Queue, ID: t.ID, State: store.StateScheduled, Payload: t.PayloadBase64, Headers: t.Headers,
		Generation: t.Generation, Failures: t.Failures, Lost: t.Lost, MaxAttempts: t.MaxAttempts, LastError: t.LastError,
	}
	if t.Payload != nil {
		if t.PayloadBase64 != nil {
			return as, store.NewInputError("payload_base64", t.PayloadBase64, "can not be given together with payload")
		}
		as.Payload = Compact(t.Payload)
	}
	var err error
	if t.State != "" {
		if as.State, err = store.ParseState(t.State); err != nil {
			return as, err
		}
	}
	for _, at := range []struct {
		field string
		from  Time
		to    *time.Time
	}{{"due_at", t.DueAt, &as.Due}, {"created_at", t.CreatedAt, &as.Created}} {
		if at.from == "" {
			return as, store.NewInputError(at.field, "", "is missing, must be a time such as 2030-01-31T07:00:00Z")
		}
		if *at.to, err = timetext.Time(at.field, string(at.from)); err != nil {
			return as, err
		}
	}
	return as, nil
}

// FromImported is the inverse of ImportItem.Store, for tasks that passed their
// checks.
func FromImported(t *store.Task) ImportItem {
	return ImportItem{
		Queue: t.Queue, ID: t.ID, State: t.State.String(), PayloadBase64: t.Payload, Headers: t.Headers,
		DueAt: Nano(t.Due), CreatedAt: Nano(t.Created),
		Generation: t.Generation, Failures: t.Failures, Lost: t.Lost, MaxAttempts: t.MaxAttempts, LastError: store.CleanError(t.LastError),
	}
}
