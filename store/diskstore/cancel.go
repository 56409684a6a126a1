package diskstore

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, requests []store.CancelRequest) ([]store.Result, error) {
	return s.byID(ctx, len(requests),
		func(i int) (queue, id string) { return requests[i].Queue, requests[i].ID },
		func(int, time.Time) error { return nil },
		func(c *change, at place, size int, _ *record, i int, _ time.Time) (store.Result, error) {
			id := requests[i].ID
			switch {
			case at.dead:
				c.removeDead(id, at.pos, uint32(size))
			case c.q.leases.bySeq[at.seq] != nil && !requests[i].Force:
				return store.Result{Outcome: store.Leased}, nil
			default:
				c.removeLive(id, at.pos, uint32(size))
			}
			return store.Result{Outcome: store.Cancelled}, nil
		})
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, requests []store.RescheduleRequest) ([]store.Result, error) {
	return s.byID(ctx, len(requests),
		func(i int) (queue, id string) { return requests[i].Queue, requests[i].ID },
		func(i int, now time.Time) error {
			_, err := store.DueTime(now, requests[i].Due, requests[i].Delay)
			return err
		},
		func(c *change, at place, size int, rec *record, i int, now time.Time) (store.Result, error) {
			due, err := store.DueTime(now, requests[i].Due, requests[i].Delay)
			switch {
			case err != nil:
				return store.Result{Err: err}, nil
			case at.dead:
				return store.Result{Outcome: store.NotFound}, nil
			case c.q.leases.bySeq[at.seq] != nil:
				return store.Result{Outcome: store.Leased}, nil
			}
			c.q.drop(at.pos)
			c.deleteRecord(kindTask, at.pos, uint32(size))
			c.schedule(pos{due.UnixMilli(), at.seq}, rec)
			return store.Result{Outcome: store.Rescheduled, Due: due}, nil
		})
}

// byID carries out a batch of changes to tasks that are named by id. All are as
// durable as a Schedule, those too that found nothing to change: another call
// may have made the change a moment ago.
func (s *Store) byID(ctx context.Context, n int, key func(i int) (queue, id string),
	check func(i int, now time.Time) error,
	do func(c *change, at place, size int, rec *record, i int, now time.Time) (store.Result, error),
) ([]store.Result, error) {
	if err := store.CheckBatch(n); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	now := s.now()
	results := make([]store.Result, n)
	for i := range results {
		err := store.CheckKey(key(i))
		if err == nil {
			err = check(i, now)
		}
		results[i].Err = err
	}
	queueOf := func(i int) string { q, _ := key(i); return q }
	err := perQueue(n, queueOf, func(name string, items []int) error {
		q := s.queue(name)
		if q == nil {
			for _, i := range items {
				if results[i].Err == nil {
					results[i].Outcome = store.NotFound
				}
			}
			return nil
		}
		if err := q.expire(now.UnixMilli()); err != nil {
			return err
		}
		q.mu.Lock()
		c := q.change(s.promised())
		var err error
		for _, i := range items {
			if results[i].Err != nil {
				continue
			}
			_, id := key(i)
			if results[i], err = c.oneByID(id, now, i, do); err == nil {
				err = c.roomy()
			}
			if err != nil {
				break
			}
		}
		return c.commitPromised(err, true)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (c *change) oneByID(id string, now time.Time, i int,
	do func(c *change, at place, size int, rec *record, i int, now time.Time) (store.Result, error),
) (store.Result, error) {
	if err := c.touch(id); err != nil {
		return store.Result{}, err
	}
	at, there, err := c.finder.find(id)
	if err != nil {
		return store.Result{}, err
	}
	if !there {
		return store.Result{Outcome: store.NotFound}, nil
	}
	rec, size, err := c.q.read(at, true)
	if unreadable(err) {
		return store.Result{Outcome: store.NotFound}, c.setAsideAt(at, id, err)
	} else if err != nil {
		return store.Result{}, err
	}
	return do(c, at, size, &rec, i, now)
}
