package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// watched is a store that checks of every answer what must hold in any test: one
// result for each item, only outcomes that the operation has, nothing early, no
// receipt twice. It remembers the queues that were used, and has a history kept.
type watched struct {
	store.Store
	t testing.TB

	mu       sync.Mutex
	queues   map[string]bool
	receipts map[store.Receipt]bool
}

func watch(t testing.TB, st store.Store, log *history.Log) *watched {
	return &watched{Store: history.Record(st, log), t: t, queues: make(map[string]bool), receipts: make(map[store.Receipt]bool)}
}

// Unwrap lets store.As see through.
func (w *watched) Unwrap() store.Store { return w.Store }

func (w *watched) used(queue string) {
	if store.CheckQueue(queue) == nil {
		w.mu.Lock()
		w.queues[queue] = true
		w.mu.Unlock()
	}
}

// results checks the form of a batch's results.
func (w *watched) results(op string, results []store.Result, err error, n int, legal func(i int, r *store.Result) bool) {
	w.t.Helper()
	if err != nil {
		return
	}
	if len(results) != n {
		w.t.Errorf("%s of %d items returned %d results", op, n, len(results))
		return
	}
	for i := range results {
		r := &results[i]
		var input *store.InputError
		switch {
		case r.Outcome != store.Refused && r.Err != nil:
			w.t.Errorf("%s: item %d is %v and has an error: %v", op, i, r.Outcome, r.Err)
		case r.Outcome != store.Refused && !legal(i, r):
			w.t.Errorf("%s: item %d has outcome %v", op, i, r.Outcome)
		case r.Outcome == store.Refused && !errors.As(r.Err, &input) && !errors.Is(r.Err, store.ErrFull):
			w.t.Errorf("%s: item %d is refused with error %v, want an *InputError or ErrFull", op, i, r.Err)
		}
	}
}

func (w *watched) time(what string, t time.Time) {
	w.t.Helper()
	if bad := badTime(t); bad != "" {
		w.t.Errorf("%s %s", what, bad)
	}
}

// task checks a task that Get, List or Exists returned.
func (w *watched) task(op string, t *store.Task, queue, id string) {
	w.t.Helper()
	if t == nil {
		w.t.Errorf("%s: no task with it", op)
		return
	}
	if t.Queue != queue || id != "" && t.ID != id {
		w.t.Errorf("%s: task %q of %q, want %q of %q", op, t.ID, t.Queue, id, queue)
	}
	w.time(op+": due", t.Due)
	w.time(op+": created", t.Created)
	if t.State == store.StateLeased {
		w.time(op+": end of lease", t.LeaseUntil)
	} else if t.Worker != "" || !t.LeaseUntil.IsZero() {
		w.t.Errorf("%s: task %q is %v and has worker %q and a lease until %v", op, t.ID, t.State, t.Worker, t.LeaseUntil)
	}
	if t.State < store.StateScheduled || t.State > store.StateDead {
		w.t.Errorf("%s: task %q is in state %d", op, t.ID, t.State)
	}
}

func (w *watched) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	w.t.Helper()
	for i := range tasks {
		w.used(tasks[i].Queue)
	}
	results, err := w.Store.Schedule(ctx, tasks)
	w.results("schedule", results, err, len(tasks), func(i int, r *store.Result) bool {
		switch r.Outcome {
		case store.Created, store.Replaced:
			w.time("schedule: due", r.Due)
			w.time("schedule: created", r.At)
			return true
		case store.Exists:
			w.task("exists", r.Task, tasks[i].Queue, tasks[i].ID)
			return true
		}
		return false
	})
	return results, err
}

// Import is that of the store; Unsupported where it has none.
func (w *watched) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	w.t.Helper()
	for i := range tasks {
		w.used(tasks[i].Queue)
	}
	into, _ := store.As[store.Importer](w.Store) // the history's, at least
	results, err := into.Import(ctx, tasks)
	w.results("import", results, err, len(tasks), func(i int, r *store.Result) bool {
		switch r.Outcome {
		case store.Created:
			w.time("import: due", r.Due)
			w.time("import: created", r.At)
			return true
		case store.Exists:
			w.task("exists", r.Task, tasks[i].Queue, tasks[i].ID)
			return true
		}
		return false
	})
	return results, err
}

func (w *watched) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	w.t.Helper()
	results, err := w.Store.Cancel(ctx, tasks)
	w.results("cancel", results, err, len(tasks), func(i int, r *store.Result) bool {
		return r.Outcome == store.Cancelled || r.Outcome == store.NotFound ||
			r.Outcome == store.Leased && !tasks[i].Force
	})
	return results, err
}

func (w *watched) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	w.t.Helper()
	results, err := w.Store.Reschedule(ctx, tasks)
	w.results("reschedule", results, err, len(tasks), func(_ int, r *store.Result) bool {
		if r.Outcome == store.Rescheduled {
			w.time("reschedule: due", r.Due)
		}
		return r.Outcome == store.Rescheduled || r.Outcome == store.Leased || r.Outcome == store.NotFound
	})
	return results, err
}

func (w *watched) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	w.t.Helper()
	results, err := w.Store.Get(ctx, keys)
	w.results("get", results, err, len(keys), func(i int, r *store.Result) bool {
		if r.Outcome == store.Found {
			w.task("get", r.Task, keys[i].Queue, keys[i].ID)
		}
		return r.Outcome == store.Found || r.Outcome == store.NotFound
	})
	return results, err
}

func (w *watched) List(ctx context.Context, r store.ListRequest) (store.ListPage, error) {
	w.t.Helper()
	page, err := w.Store.List(ctx, r)
	for i := range page.Tasks {
		t := &page.Tasks[i]
		w.task("list", t, r.Queue, "")
		if t.State != r.State {
			w.t.Errorf("list of %v tasks has %q, which is %v", r.State, t.ID, t.State)
		}
		if !r.Payloads && (t.Payload != nil || t.Headers != nil) {
			w.t.Errorf("list without payloads has those of %q", t.ID)
		}
		if i > 0 && t.Due.Before(page.Tasks[i-1].Due) {
			w.t.Errorf("list: %q, due %v, comes after %q, due %v", t.ID, t.Due, page.Tasks[i-1].ID, page.Tasks[i-1].Due)
		}
	}
	limit := r.Limit
	if limit == 0 {
		limit = 100
	}
	if len(page.Tasks) > limit && err == nil {
		w.t.Errorf("list with limit %d returned %d tasks", limit, len(page.Tasks))
	}
	return page, err
}

func (w *watched) PutSettings(ctx context.Context, queue string, s store.Settings) (store.Settings, error) {
	w.used(queue)
	return w.Store.PutSettings(ctx, queue, s)
}

func (w *watched) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	w.t.Helper()
	results, err := w.Store.Settle(ctx, settlements)
	w.results("settle", results, err, len(settlements), func(i int, r *store.Result) bool {
		switch r.Outcome {
		case store.Stale:
			return true
		case store.Retrying, store.Snoozed:
			w.time(r.Outcome.String()+": due", r.Due)
		case store.Extended:
			w.time("extended: new deadline", r.At)
		}
		switch settlements[i].Action {
		case store.Ack:
			return r.Outcome == store.Acked
		case store.Retry:
			return r.Outcome == store.Retrying || r.Outcome == store.Dead
		case store.Snooze:
			return r.Outcome == store.Snoozed
		case store.Bury:
			return r.Outcome == store.Dead
		case store.Release:
			return r.Outcome == store.Released
		case store.Extend:
			return r.Outcome == store.Extended
		}
		return false
	})
	return results, err
}

func (w *watched) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	w.t.Helper()
	results, err := w.Store.Claim(ctx, requests)
	if err != nil {
		return results, err
	}
	if len(results) != len(requests) {
		w.t.Errorf("claim of %d requests returned %d results", len(requests), len(results))
		return results, err
	}
	for i := range results {
		w.claimed(&requests[i], &results[i])
	}
	return results, err
}

func (w *watched) claimed(q *store.ClaimRequest, r *store.ClaimResult) {
	w.t.Helper()
	if r.Err != nil {
		if len(r.Tasks) > 0 {
			w.t.Errorf("claim: tasks %v together with error %v", ids(r.Tasks), r.Err)
		}
		return
	}
	if r.Now.IsZero() || r.Now.Location() != time.UTC {
		w.t.Errorf("claim: the store's clock is %v", r.Now)
	}
	if !r.Next.IsZero() && r.Next.Location() != time.UTC {
		w.t.Errorf("claim: next is %v, not in UTC", r.Next)
	}
	if len(r.Tasks) > q.Max {
		w.t.Errorf("claim of %d got %d tasks", q.Max, len(r.Tasks))
	}
	ahead := q.Ahead
	if w.Capabilities().Ahead == 0 {
		ahead = 0
	}
	for i := range r.Tasks {
		l := &r.Tasks[i]
		switch {
		case l.Queue != q.Queue:
			w.t.Errorf("claim from %q got a task of %q", q.Queue, l.Queue)
		case l.State != store.StateLeased:
			w.t.Errorf("claim: task %q is %v, want leased", l.ID, l.State)
		case l.Due.After(l.ClaimedAt.Add(ahead)):
			w.t.Errorf("claim: task %q is %v early (due %v, claimed at %v)", l.ID, l.Due.Sub(l.ClaimedAt), l.Due, l.ClaimedAt)
		case l.ClaimedAt.After(r.Now):
			w.t.Errorf("claim: task %q was claimed at %v, after the store's clock %v", l.ID, l.ClaimedAt, r.Now)
		case i > 0 && l.Due.Before(r.Tasks[i-1].Due):
			w.t.Errorf("claim: %q, due %v, comes after %q, due %v", l.ID, l.Due, r.Tasks[i-1].ID, r.Tasks[i-1].Due)
		}
		w.time("claim: due", l.Due)
		w.time("claim: created", l.Created)
		if q.AtMostOnce {
			if l.Receipt != "" {
				w.t.Errorf("claim: task %q was claimed at most once and has a receipt", l.ID)
			}
			continue
		}
		w.time("claim: end of lease", l.LeaseUntil)
		if !l.LeaseUntil.After(l.ClaimedAt) {
			w.t.Errorf("claim: the lease of %q ends at %v, not after it was claimed at %v", l.ID, l.LeaseUntil, l.ClaimedAt)
		}
		w.mu.Lock()
		again := w.receipts[l.Receipt]
		w.receipts[l.Receipt] = true
		w.mu.Unlock()
		if l.Receipt == "" || again {
			w.t.Errorf("claim: the receipt of %q is empty or was given before: %q", l.ID, l.Receipt)
		}
		for _, c := range []byte(l.Receipt) {
			if c <= ' ' || c > '~' {
				w.t.Errorf("claim: the receipt %q is not printable ASCII", l.Receipt)
			}
		}
	}
}
