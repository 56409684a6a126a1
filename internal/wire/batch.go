package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

// Key names a task.
type Key struct {
	Queue string `json:"queue" example:"orders"`
	ID    string `json:"id" example:"order-1001"`
}

// The bodies of the calls that take many items, over any queues.
type (
	ScheduleBatch struct {
		Tasks []NewTask `json:"tasks" maxItems:"10000" doc:"Up to 10,000."`
	}
	ImportBatch struct {
		Tasks []ImportItem `json:"tasks" maxItems:"10000" doc:"Up to 10,000."`
	}
	GetBatch struct {
		Tasks []Key `json:"tasks" maxItems:"10000"`
	}
	CancelItem struct {
		Queue string `json:"queue"`
		ID    string `json:"id"`
		Force bool   `json:"force,omitzero" doc:"Revoke a lease."`
	}
	CancelBatch struct {
		Tasks []CancelItem `json:"tasks" maxItems:"10000"`
	}
	RescheduleItem struct {
		Queue string    `json:"queue"`
		ID    string    `json:"id"`
		Delay *Duration `json:"delay,omitzero" example:"30m"`
		DueAt *Time     `json:"due_at,omitzero" example:"2030-01-31T07:00:00Z"`
	}
	RescheduleBatch struct {
		Tasks []RescheduleItem `json:"tasks" maxItems:"10000"`
	}
	ClaimItem struct {
		Queue      string   `json:"queue"`
		Max        int      `json:"max"`
		Lease      Duration `json:"lease,omitzero"`
		Worker     string   `json:"worker,omitzero"`
		AtMostOnce bool     `json:"at_most_once,omitzero"`
	}
	ClaimBatch struct {
		Claims []ClaimItem `json:"claims" maxItems:"10000"`
	}
	SettleItem struct {
		Receipt string   `json:"receipt"`
		Action  string   `json:"action" enum:"ack,retry,snooze,bury,release,extend"`
		Delay   Duration `json:"delay,omitzero" doc:"Of retry and snooze."`
		Backoff bool     `json:"backoff,omitzero" doc:"Of retry: the delay comes from the queue's backoff."`
		Error   string   `json:"error,omitzero" doc:"Of retry and bury: why."`
		Lease   Duration `json:"lease,omitzero" doc:"Of extend; the queue's lease where it is not given."`
	}
	SettleBatch struct {
		Settlements []SettleItem `json:"settlements" maxItems:"10000"`
	}
)

// Results is the answer to a batch.
type Results struct {
	Results []Result `json:"results" doc:"In the order of the items."`
}

// Outcomes is the answer to a batch of new tasks.
type Outcomes struct {
	Outcomes []Result `json:"outcomes" doc:"In the order of the tasks."`
	Refused  int      `json:"refused" doc:"How many of them were refused."`
}

// Result is what became of one item.
type Result struct {
	Outcome string `json:"outcome" doc:"created, exists, replaced, cancelled, rescheduled, leased, not_found, found, acked, retrying, snoozed, dead, released, extended, stale or refused."`
	ID      string `json:"id,omitzero"`
	DueAt   Time   `json:"due_at,omitzero" doc:"The due time now, where it was set." format:"date-time"`
	At      Time   `json:"at,omitzero" doc:"When it was scheduled; when the lease ends, after extend." format:"date-time"`
	Task    *Task  `json:"task,omitzero" doc:"The task that is there, where the outcome is exists or found."`
	Error   *Error `json:"error,omitzero" doc:"Why it was refused."`
}

// ClaimResults is the answer to a batch of claims.
type ClaimResults struct {
	Results []ClaimResult `json:"results" doc:"In the order of the claims."`
}

// ClaimResult is what a claim got.
type ClaimResult struct {
	Tasks []Task `json:"tasks"`
	Now   Time   `json:"now,omitzero" doc:"The store's clock." format:"date-time"`
	Next  Time   `json:"next,omitzero" doc:"The earliest time at which another claim might get something, as far as it is known." format:"date-time"`
	Error *Error `json:"error,omitzero"`
}

// Error says what is wrong: it is part of a problem document and of results.
type Error struct {
	Code    string `json:"code" doc:"input, full, unsupported, version, unavailable, not_found, leased, media_type, too_large, internal."`
	Field   string `json:"field,omitzero" doc:"The field that is wrong, as in delay or tasks[3].due_at."`
	Value   string `json:"value,omitzero" doc:"Its value, shortened."`
	Problem string `json:"problem" doc:"What is wrong with it, and the limit."`
}

// The codes of errors.
const (
	CodeInput       = "input"
	CodeFull        = "full"
	CodeUnsupported = "unsupported"
	CodeVersion     = "version"
	CodeUnavailable = "unavailable"
	CodeNotFound    = "not_found"
	CodeLeased      = "leased"
	CodeMediaType   = "media_type"
	CodeTooLarge    = "too_large"
	CodeMethod      = "method"
	CodeInternal    = "internal"
)

// FromError describes an error that is an item's result.
func FromError(err error) *Error {
	if err == nil {
		return nil
	}
	var input *store.InputError
	switch {
	case errors.As(err, &input):
		return &Error{Code: CodeInput, Field: valid(input.Field), Value: valid(input.Value), Problem: valid(input.Problem)}
	case errors.Is(err, store.ErrFull):
		return &Error{Code: CodeFull, Problem: valid(err.Error())}
	case errors.Is(err, store.ErrUnsupported):
		return &Error{Code: CodeUnsupported, Problem: valid(err.Error())}
	case errors.Is(err, store.ErrVersion):
		return &Error{Code: CodeVersion, Problem: store.ErrVersion.Error()}
	}
	return &Error{Code: CodeInternal, Problem: valid(err.Error())}
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Store is the inverse of FromError.
func (e *Error) Store() error {
	if e == nil {
		return nil
	}
	switch e.Code {
	case CodeInput, CodeTooLarge:
		if e.Field != "" {
			return &store.InputError{Field: e.Field, Value: e.Value, Problem: e.Problem}
		}
	case CodeFull:
		return wrapped{e.Problem, store.ErrFull}
	case CodeUnsupported:
		return wrapped{e.Problem, store.ErrUnsupported}
	case CodeVersion:
		return store.ErrVersion
	}
	return fmt.Errorf("server: %s", e.Problem)
}

// wrapped has the server's words, and is the sentinel to errors.Is.
type wrapped struct {
	text string
	err  error
}

func (w wrapped) Error() string { return w.text }
func (w wrapped) Unwrap() error { return w.err }

// FromResult makes an answer of a result.
func FromResult(r *store.Result, how Payloads) Result {
	w := Result{Outcome: r.Outcome.String(), DueAt: milli(r.Due), At: milli(r.At), Error: FromError(r.Err)}
	if r.Task != nil {
		t := FromTask(r.Task, how)
		w.Task = &t
	}
	return w
}

// Store is the inverse of FromResult.
func (w *Result) Store() (store.Result, error) {
	outcome, ok := store.ParseOutcome(w.Outcome)
	if !ok {
		return store.Result{}, fmt.Errorf("server says outcome %q, which this program does not know", w.Outcome)
	}
	r := store.Result{Outcome: outcome, Err: w.Error.Store()}
	if w.Task != nil {
		t, err := w.Task.Store()
		if err != nil {
			return r, err
		}
		r.Task = &t
	}
	return r, parseTimes([]timePair{{w.DueAt, &r.Due}, {w.At, &r.At}})
}

// FromClaimResult makes an answer of a claim's result.
func FromClaimResult(r *store.ClaimResult, how Payloads) ClaimResult {
	w := ClaimResult{Tasks: make([]Task, len(r.Tasks)), Now: Nano(r.Now), Next: Nano(r.Next), Error: FromError(r.Err)}
	for i := range r.Tasks {
		w.Tasks[i] = FromLease(&r.Tasks[i], how)
	}
	return w
}

// Store is the inverse of FromClaimResult.
func (w *ClaimResult) Store() (store.ClaimResult, error) {
	r := store.ClaimResult{Err: w.Error.Store()}
	for i := range w.Tasks {
		l, err := w.Tasks[i].StoreLease()
		if err != nil {
			return r, err
		}
		r.Tasks = append(r.Tasks, l)
	}
	return r, parseTimes([]timePair{{w.Now, &r.Now}, {w.Next, &r.Next}})
}

// Store makes a record of package store. The error is a *store.InputError.
func (c *ClaimItem) Store() (store.ClaimRequest, error) {
	r := store.ClaimRequest{Queue: c.Queue, Max: c.Max, Worker: c.Worker, AtMostOnce: c.AtMostOnce}
	var err error
	if c.Lease != "" {
		r.Lease, err = timetext.Duration("lease", string(c.Lease))
	}
	return r, err
}

// FromClaimRequest is the inverse of ClaimItem.Store.
func FromClaimRequest(r *store.ClaimRequest) ClaimItem {
	c := ClaimItem{Queue: r.Queue, Max: r.Max, Worker: store.CleanWorker(r.Worker), AtMostOnce: r.AtMostOnce}
	if r.Lease != 0 {
		c.Lease = Duration(r.Lease.String())
	}
	return c
}

// Store makes a record of package store. The error is a *store.InputError.
func (s *SettleItem) Store() (store.Settlement, error) {
	m := store.Settlement{Receipt: store.Receipt(s.Receipt), Backoff: s.Backoff, Error: s.Error}
	for a := store.Ack; a <= store.Extend; a++ {
		if a.String() == s.Action {
			m.Action = a
		}
	}
	if m.Action == 0 {
		return m, store.NewInputError("action", s.Action, "must be ack, retry, snooze, bury, release or extend")
	}
	var err error
	if s.Delay != "" {
		if m.Delay, err = timetext.Duration("delay", string(s.Delay)); err != nil {
			return m, err
		}
	}
	if s.Lease != "" {
		m.Lease, err = timetext.Duration("lease", string(s.Lease))
	}
	return m, err
}

// FromSettlement is the inverse of SettleItem.Store, for known actions.
func FromSettlement(m *store.Settlement) SettleItem {
	s := SettleItem{Receipt: string(m.Receipt), Action: m.Action.String(), Backoff: m.Backoff, Error: store.CleanError(m.Error)}
	if m.Delay != 0 {
		s.Delay = Duration(m.Delay.String())
	}
	if m.Lease != 0 {
		s.Lease = Duration(m.Lease.String())
	}
	return s
}
