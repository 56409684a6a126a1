package remotestore

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

// asBase64 asks for payloads byte for byte.
const asBase64 = "?payload=base64"

// batched sends the items that pass their check, in slices that the server
// takes, and puts the results together. What JSON can not say (an id that is no
// UTF-8, an unknown action) is refused here and never sent.
func batched[In, Out any](s *Store, ctx context.Context, path string, k kind, in []In,
	check func(*In) error, size func(*In) int, convert func(*In) Out, body func([]Out) any,
) ([]store.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := store.CheckBatch(len(in)); err != nil {
		return nil, err
	}
	if done, err := s.begin(); err != nil {
		return nil, err
	} else {
		defer done()
	}
	results := make([]store.Result, len(in))
	var out []Out
	var index []int
	bytes := 0
	flush := func() error {
		if len(out) == 0 {
			return nil
		}
		var answer struct {
			wire.Results
			Outcomes []wire.Result `json:"outcomes"`
		}
		if err := s.post(ctx, path+asBase64, k, body(out), &answer); err != nil {
			return err
		}
		got := answer.Results.Results
		if answer.Outcomes != nil {
			got = answer.Outcomes
		}
		if len(got) != len(out) {
			return fmt.Errorf("server: %d results for %d items", len(got), len(out))
		}
		for i := range got {
			var err error
			if results[index[i]], err = got[i].Store(); err != nil {
				return err
			}
		}
		out, index, bytes = out[:0], index[:0], 0
		return nil
	}
	for i := range in {
		if err := check(&in[i]); err != nil {
			results[i] = store.Result{Outcome: store.Refused, Err: err}
			continue
		}
		n := 200 + size(&in[i])
		if bytes+n > sliceBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		out, index = append(out, convert(&in[i])), append(index, i)
		bytes += n
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return results, nil
}

// repeatSafely is how far away tasks must be due for a lost call to be sent again.
const repeatSafely = 10 * time.Minute

// ifFar lets a call be sent again where no task can have run meanwhile. A task
// that is due now may be done and gone by the time the call is repeated, which
// would make it run twice; and a second replacement would revoke the lease of
// the first.
func ifFar(tasks []store.NewTask) kind {
	for i := range tasks {
		t := &tasks[i]
		far := t.Delay >= repeatSafely || !t.Due.IsZero() && time.Until(t.Due) >= repeatSafely
		if !far || t.Conflict != store.ConflictKeep {
			return once
		}
	}
	return repeatable
}

func small[T any](*T) int { return 0 }

// Schedule implements store.Store. A call whose answer was lost is sent again
// where all tasks are due in ten minutes or later and none replaces another.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	return batched(s, ctx, "/v1/batch/schedule", ifFar(tasks), tasks,
		func(t *store.NewTask) error {
			// All but what needs the store's clock.
			c := *t
			if c.Due.IsZero() && c.Delay > 0 {
				c.Delay = 0
			}
			_, err := c.Check(time.Now(), s.caps.MaxPayload)
			return err
		},
		func(t *store.NewTask) int { return len(t.Payload)*4/3 + 2*store.MaxHeaderBytes*min(len(t.Headers), 1) },
		wire.FromNewTask,
		func(tasks []wire.NewTask) any { return wire.ScheduleBatch{Tasks: tasks} })
}

// Import implements store.Importer, where the server's store does. Like Schedule
// it is sent again after its answer was lost where all tasks are due in ten
// minutes or later, or dead.
func (s *Store) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	if len(tasks) == 0 {
		// The question whether it can be done at all.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var answer wire.Results
		return nil, s.post(ctx, "/v1/batch/import", repeatable, wire.ImportBatch{Tasks: []wire.ImportItem{}}, &answer)
	}
	k := repeatable
	for i := range tasks {
		if tasks[i].State != store.StateDead && time.Until(tasks[i].Due) < repeatSafely {
			k = once
		}
	}
	return batched(s, ctx, "/v1/batch/import", k, tasks,
		func(t *store.Task) error {
			_, err := t.CheckImport(s.caps.MaxPayload)
			return err
		},
		func(t *store.Task) int {
			return len(t.Payload)*4/3 + 2*store.MaxHeaderBytes*min(len(t.Headers), 1) + 2*min(len(t.LastError), store.MaxErrorBytes)
		},
		wire.FromImported,
		func(tasks []wire.ImportItem) any { return wire.ImportBatch{Tasks: tasks} })
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	return batched(s, ctx, "/v1/batch/cancel", once, tasks,
		func(t *store.CancelRequest) error { return store.CheckKey(t.Queue, t.ID) }, small,
		func(t *store.CancelRequest) wire.CancelItem {
			return wire.CancelItem{Queue: t.Queue, ID: t.ID, Force: t.Force}
		},
		func(tasks []wire.CancelItem) any { return wire.CancelBatch{Tasks: tasks} })
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	return batched(s, ctx, "/v1/batch/reschedule", once, tasks,
		func(t *store.RescheduleRequest) error {
			if err := store.CheckKey(t.Queue, t.ID); err != nil {
				return err
			}
			if t.Due.IsZero() && t.Delay > 0 {
				return nil // the server's clock decides
			}
			_, err := store.DueTime(time.Now(), t.Due, t.Delay)
			return err
		}, small,
		func(t *store.RescheduleRequest) wire.RescheduleItem {
			item := wire.RescheduleItem{Queue: t.Queue, ID: t.ID}
			item.DueAt, item.Delay = wire.FromWhen(t.Due, t.Delay)
			return item
		},
		func(tasks []wire.RescheduleItem) any { return wire.RescheduleBatch{Tasks: tasks} })
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	return batched(s, ctx, "/v1/batch/get", repeatable, keys,
		func(k *store.Key) error { return store.CheckKey(k.Queue, k.ID) }, small,
		func(k *store.Key) wire.Key { return wire.Key{Queue: k.Queue, ID: k.ID} },
		func(keys []wire.Key) any { return wire.GetBatch{Tasks: keys} })
}

// Settle implements store.Store. It is never sent twice: an Ack that was carried
// out says Stale the second time, which would send a worker that did its task in
// time to look for one that did it too.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	return batched(s, ctx, "/v1/batch/settle", once, settlements,
		func(m *store.Settlement) error {
			if _, err := m.Receipt.Parse(); err != nil {
				return err
			}
			c := *m
			if c.Delay > 0 && !c.Backoff {
				c.Delay = 0 // the server's clock decides
			}
			return c.Check(time.Now())
		},
		func(m *store.Settlement) int { return len(m.Receipt) + 2*min(len(m.Error), store.MaxErrorBytes) },
		wire.FromSettlement,
		func(items []wire.SettleItem) any { return wire.SettleBatch{Settlements: items} })
}

// Claim implements store.Store. Like Settle it is never sent twice: the tasks
// that the first one got would wait for their leases to run out.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := store.CheckBatch(len(requests)); err != nil {
		return nil, err
	}
	if done, err := s.begin(); err != nil {
		return nil, err
	} else {
		defer done()
	}
	results := make([]store.ClaimResult, len(requests))
	body := wire.ClaimBatch{}
	var index []int
	for i := range requests {
		if err := requests[i].Check(); err != nil {
			results[i].Err = err
			continue
		}
		body.Claims = append(body.Claims, wire.FromClaimRequest(&requests[i]))
		index = append(index, i)
	}
	if len(index) == 0 {
		return results, nil
	}
	var answer wire.ClaimResults
	if err := s.post(ctx, "/v1/batch/claim"+asBase64, once, body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(index) {
		return nil, fmt.Errorf("server: %d results for %d claims", len(answer.Results), len(index))
	}
	for j := range answer.Results {
		var err error
		if results[index[j]], err = answer.Results[j].Store(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, request store.ListRequest) (store.ListPage, error) {
	if err := request.Check(); err != nil {
		return store.ListPage{}, err
	}
	query := url.Values{"state": {request.State.String()}, "limit": {strconv.Itoa(request.Limit)}}
	if request.Cursor != "" {
		query.Set("cursor", request.Cursor)
	}
	if request.Payloads {
		query.Set("payload", string(wire.PayloadAsBase64))
	}
	var answer wire.TaskPage
	if err := s.get(ctx, queuePath(request.Queue)+"/tasks", query, &answer); err != nil {
		return store.ListPage{}, err
	}
	page := store.ListPage{Tasks: make([]store.Task, len(answer.Tasks)), Cursor: answer.NextCursor}
	for i := range answer.Tasks {
		var err error
		if page.Tasks[i], err = answer.Tasks[i].Store(); err != nil {
			return store.ListPage{}, err
		}
	}
	return page, nil
}

func queuePath(queue string) string { return "/v1/queues/" + url.PathEscape(queue) }
