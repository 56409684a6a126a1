package memstore

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/duetime/duetime/store"
)

func refused(err error) store.Result { return store.Result{Outcome: store.Refused, Err: err} }

// Schedule implements store.Store.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	now, err := s.begin(ctx, len(tasks))
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]store.Result, len(tasks))
	for i := range tasks {
		results[i] = s.schedule(&tasks[i], now)
	}
	return results, nil
}

func (s *Store) schedule(n *store.NewTask, now time.Time) store.Result {
	due, err := n.Check(now, s.maxPayload)
	if err != nil {
		return refused(err)
	}
	q := s.create(n.Queue, now)
	outcome, generation := store.Created, 0
	if old := q.tasks[n.ID]; old != nil {
		if old.State != store.StateDead {
			if n.Conflict == store.ConflictKeep {
				there := old.view(now, true)
				return store.Result{Outcome: store.Exists, Task: &there}
			}
			outcome, generation = store.Replaced, old.Generation+1
		}
		q.remove(old)
	}
	s.seq++
	t := &task{seq: s.seq, Task: store.Task{
		Queue:       n.Queue,
		ID:          n.ID,
		State:       store.StateScheduled,
		Headers:     maps.Clone(n.Headers),
		Due:         due,
		Created:     store.CeilMilli(now),
		Generation:  generation,
		MaxAttempts: n.MaxAttempts,
	}}
	if len(n.Payload) > 0 {
		t.Payload = bytes.Clone(n.Payload)
	}
	q.add(t)
	return store.Result{Outcome: outcome, Due: t.Due, At: t.Created}
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	now, err := s.begin(ctx, len(tasks))
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]store.Result, len(tasks))
	for i, c := range tasks {
		q, t, err := s.find(c.Queue, c.ID, now)
		switch {
		case err != nil:
			results[i] = refused(err)
		case t == nil:
			results[i].Outcome = store.NotFound
		case t.State == store.StateLeased && !c.Force:
			results[i].Outcome = store.Leased
		default:
			q.remove(t)
			results[i].Outcome = store.Cancelled
		}
	}
	return results, nil
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	now, err := s.begin(ctx, len(tasks))
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]store.Result, len(tasks))
	for i, r := range tasks {
		q, t, err := s.find(r.Queue, r.ID, now)
		var due time.Time
		if err == nil {
			due, err = store.DueTime(now, r.Due, r.Delay)
		}
		switch {
		case err != nil:
			results[i] = refused(err)
		case t == nil || t.State == store.StateDead:
			results[i].Outcome = store.NotFound
		case t.State == store.StateLeased:
			results[i].Outcome = store.Leased
		default:
			q.remove(t)
			t.Due = due
			q.add(t)
			results[i] = store.Result{Outcome: store.Rescheduled, Due: due}
		}
	}
	return results, nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	now, err := s.begin(ctx, len(keys))
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]store.Result, len(keys))
	for i, k := range keys {
		_, t, err := s.find(k.Queue, k.ID, now)
		switch {
		case err != nil:
			results[i] = refused(err)
		case t == nil:
			results[i].Outcome = store.NotFound
		default:
			v := t.view(now, true)
			results[i] = store.Result{Outcome: store.Found, Task: &v}
		}
	}
	return results, nil
}

// find looks a task up; t is nil where there is none.
func (s *Store) find(queue, id string, now time.Time) (q *queue, t *task, err error) {
	if err := store.CheckKey(queue, id); err != nil {
		return nil, nil, err
	}
	if q = s.queue(queue, now); q != nil {
		t = q.tasks[id]
	}
	return q, t, nil
}
