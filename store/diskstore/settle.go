package diskstore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime/internal/backoff"
	"github.com/duetime/duetime/store"
)

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	if err := store.CheckBatch(len(settlements)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	now := s.now()
	results := make([]store.Result, len(settlements))
	parts := make([]store.ReceiptParts, len(settlements))
	for i := range settlements {
		if parts[i], results[i].Err = settlements[i].Receipt.Parse(); results[i].Err == nil {
			results[i].Err = settlements[i].Check(now)
		}
	}
	err := perQueue(len(parts), func(i int) string { return parts[i].Queue }, func(name string, items []int) error {
		q := s.queue(name)
		if q == nil {
			for _, i := range items {
				if results[i].Err == nil {
					results[i].Outcome = store.Stale
				}
			}
			return nil
		}
		q.mu.Lock()
		c := q.change(soft)
		var err error
		for _, i := range items {
			if results[i].Err != nil {
				continue
			}
			l := q.leases.byToken[parts[i].Token]
			if l == nil || l.id != parts[i].ID || l.until <= now.UnixMilli() {
				results[i].Outcome = store.Stale
				continue
			}
			if results[i], err = c.settle(l, &settlements[i], now); err == nil {
				err = c.roomy()
			}
			if err != nil {
				break
			}
		}
		return c.commit(err)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (c *change) settle(l *lease, st *store.Settlement, now time.Time) (store.Result, error) {
	q := c.q
	switch st.Action {
	case store.Ack:
		c.endLease(l)
		c.remove(l.id, l.pos, l.size)
		return store.Result{Outcome: store.Acked}, nil
	case store.Release:
		c.endLease(l)
		q.add(l.pos)
		return store.Result{Outcome: store.Released, Due: milli(l.due)}, nil
	case store.Extend:
		duration := st.Lease
		if duration == 0 {
			duration = q.settings.Lease
		}
		until := store.CeilMilli(now.Add(duration))
		q.leases.extend(l, until.UnixMilli())
		c.putLease(l)
		return store.Result{Outcome: store.Extended, At: until}, nil
	}
	// The others write the record anew. It may have been written by this very
	// change, at an earlier item.
	if err := c.touch(l.id); err != nil {
		return store.Result{}, err
	}
	rec, size, err := q.read(place{pos: l.pos}, true)
	if unreadable(err) {
		return store.Result{Outcome: store.Stale}, c.setAside(l.pos, l.id, l)
	} else if err != nil {
		return store.Result{}, err
	}
	delay := st.Delay
	if st.Action == store.Retry {
		rec.failures++
		rec.lastError = store.CleanError(st.Error)
		if st.Backoff {
			delay = backoff.Delay(q.settings.Backoff, int(rec.failures+rec.lost), rand.Float64)
		}
	}
	if st.Action == store.Bury {
		rec.lastError = store.CleanError(st.Error)
	}
	c.endLease(l)
	if st.Action == store.Bury || st.Action == store.Retry && int(rec.failures) >= q.maxAttempts(&rec) {
		c.bury(l.pos, uint32(size), &rec)
		return store.Result{Outcome: store.Dead}, nil
	}
	due, err := store.DueTime(now, time.Time{}, delay)
	if err != nil { // only a backoff at the end of time: its last instant will do
		due = store.MaxTime
	}
	c.deleteRecord(kindTask, l.pos, uint32(size))
	c.schedule(pos{due.UnixMilli(), l.seq}, &rec)
	outcome := store.Snoozed
	if st.Action == store.Retry {
		outcome = store.Retrying
	}
	return store.Result{Outcome: outcome, Due: due}, nil
}
