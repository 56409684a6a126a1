package diskstore

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

var _ store.Importer = (*Store)(nil)

// Import implements store.Importer. It is as durable as Schedule.
func (s *Store) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	if err := store.CheckBatch(len(tasks)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	now := s.now()
	full := s.space.check()
	results := make([]store.Result, len(tasks))
	good := make([]store.Task, len(tasks))
	for i := range tasks {
		var err error
		if good[i], err = tasks[i].CheckImport(s.maxPayload); err == nil {
			err = full
		}
		results[i].Err = err
	}
	err := perQueue(len(tasks), func(i int) string { return tasks[i].Queue }, func(name string, items []int) error {
		return s.importQueue(name, now, good, items, results)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (s *Store) importQueue(name string, now time.Time, tasks []store.Task, items []int, results []store.Result) error {
	wanted := items[:0]
	for _, i := range items {
		if results[i].Err == nil {
			wanted = append(wanted, i)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	q, err := s.makeQueue(name)
	if err != nil {
		return err
	}
	if err := q.expire(now.UnixMilli()); err != nil {
		return err
	}
	q.mu.Lock()
	c := q.change(s.promised())
	seen := false // a task that was there; its own call may not be durable yet
	for _, i := range wanted {
		if results[i], err = c.importOne(&tasks[i], now); err == nil {
			err = c.roomy()
		}
		if err != nil {
			break
		}
		seen = seen || results[i].Outcome == store.Exists
	}
	return c.commitPromised(err, seen)
}

func (c *change) importOne(t *store.Task, now time.Time) (store.Result, error) {
	q := c.q
	if err := c.touch(t.ID); err != nil {
		return store.Result{}, err
	}
	at, there, err := c.finder.find(t.ID)
	if err != nil {
		return store.Result{}, err
	}
	if there {
		old, _, err := q.read(at, true)
		switch {
		case unreadable(err):
			if err := c.setAsideAt(at, t.ID, err); err != nil {
				return store.Result{}, err
			}
		case err != nil:
			return store.Result{}, err
		default:
			task := q.task(&old, at, now)
			return store.Result{Outcome: store.Exists, Task: &task}, nil
		}
	}
	rec := record{
		id: t.ID, created: t.Created.UnixMilli(), generation: uint32(t.Generation),
		failures: uint32(t.Failures), lost: uint32(t.Lost), maxAttempts: uint32(t.MaxAttempts),
		headers: t.Headers, lastError: t.LastError, payload: t.Payload,
	}
	p := pos{t.Due.UnixMilli(), q.nextSeq}
	q.nextSeq++
	if t.State == store.StateDead {
		c.addDead(p, &rec)
	} else {
		c.schedule(p, &rec)
	}
	return store.Result{Outcome: store.Created, Due: t.Due, At: t.Created}, nil
}
