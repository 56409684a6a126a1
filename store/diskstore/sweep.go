package diskstore

import (
	"context"
	"math"

	"github.com/duetime/duetime/store"
)

// sweepSlice is how many tasks Redrive and Purge move before they let others in.
const sweepSlice = 1000

// Redrive implements store.Store.
func (s *Store) Redrive(ctx context.Context, r store.RedriveRequest) (int, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.ops.RUnlock()
	q := s.queue(r.Queue)
	if q == nil {
		return 0, nil
	}
	// One moment for all of them: their order is that of scheduling then.
	now := s.now().UnixMilli()
	if err := q.expire(now); err != nil {
		return 0, err
	}
	if r.All {
		return q.sweep(ctx, kindDead, pos{}, pos{math.MaxInt64, 0}, func(c *change, p pos) (bool, error) {
			return c.redrive(p, now)
		})
	}
	q.mu.Lock()
	c := q.change(s.promised())
	n := 0
	var failed error
	for _, id := range r.IDs {
		at, there, err := c.finder.find(id)
		if err == nil && there && at.dead {
			if err = c.touch(id); err == nil {
				if at, there, err = c.finder.find(id); err == nil && there && at.dead {
					var did bool
					if did, err = c.redrive(at.pos, now); did {
						n++
					}
				}
			}
		}
		if err == nil {
			err = c.roomy()
		}
		if err != nil {
			failed = err
			break
		}
	}
	return n, c.commit(failed)
}

// redrive brings one dead task back, due now.
func (c *change) redrive(p pos, now int64) (bool, error) {
	q := c.q
	rec, size, err := q.read(place{p, true}, true)
	if unreadable(err) {
		return false, nil // gone; or damaged, and it stays where a person can look at it
	} else if err != nil {
		return false, err
	}
	rec.failures, rec.lost = 0, 0
	c.deleteRecord(kindDead, p, uint32(size))
	q.dead--
	c.schedule(pos{now, p.seq}, &rec)
	return true, nil
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, name string, state store.State) (int, error) {
	if err := store.CheckQueue(name); err != nil {
		return 0, err
	}
	r := store.ListRequest{Queue: name, State: state}
	if err := r.Check(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.ops.RUnlock()
	q := s.queue(name)
	if q == nil {
		return 0, nil
	}
	// Deletions free the disk once they are merged with what they delete.
	defer func() { _, _ = s.db.AsyncFlush() }()
	now := s.now().UnixMilli()
	if err := q.expire(now); err != nil {
		return 0, err
	}
	end := pos{now, math.MaxUint64}.after()
	last := pos{math.MaxInt64, 0}
	switch state {
	case store.StateDead:
		return q.sweep(ctx, kindDead, pos{}, last, (*change).purgeDead)
	case store.StateScheduled:
		return q.sweep(ctx, kindTask, end, last, (*change).purgePending)
	case store.StateReady:
		q.mu.Lock()
		low := q.low()
		q.mu.Unlock()
		return q.sweep(ctx, kindTask, low, end, (*change).purgePending)
	}
	return q.purgeLeased(ctx)
}

func (c *change) purgeDead(p pos) (bool, error) {
	rec, size, err := c.q.read(place{p, true}, false)
	if err == errGone {
		return false, nil
	} else if err == errRecord {
		c.deleteRecord(kindDead, p, 0)
		c.q.dead--
		return true, nil
	} else if err != nil {
		return false, err
	}
	c.removeDead(rec.id, p, uint32(size))
	return true, nil
}

func (c *change) purgePending(p pos) (bool, error) {
	q := c.q
	if q.leases.bySeq[p.seq] != nil {
		return false, nil
	}
	rec, size, err := q.read(place{pos: p}, false)
	switch err {
	case nil:
	case errGone:
		return false, nil
	case errRecord:
		q.drop(p)
		return true, c.setAside(p, "", nil)
	default:
		return false, err
	}
	q.drop(p)
	c.remove(rec.id, p, uint32(size))
	return true, nil
}

func (q *queue) purgeLeased(ctx context.Context) (int, error) {
	n := 0
	for {
		q.mu.Lock()
		c := q.change(q.s.promised())
		slice := 0
		for _, l := range q.leases.bySeq {
			c.endLease(l)
			c.remove(l.id, l.pos, l.size)
			if slice++; slice == sweepSlice {
				break
			}
		}
		if err := c.commit(nil); err != nil {
			return n, err
		}
		n += slice
		if slice < sweepSlice {
			return n, nil
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
	}
}

// sweep calls do for each record of a kind from one place up to another, in
// slices, and returns for how many do said true. Do finds the record gone where
// somebody was quicker. Tasks that come into the range behind the sweep are not
// met.
func (q *queue) sweep(ctx context.Context, kind byte, from, to pos, do func(*change, pos) (bool, error)) (int, error) {
	n := 0
	for {
		found, err := q.slice(kind, from, to)
		if err != nil {
			return n, err
		}
		if len(found) == 0 {
			return n, nil
		}
		q.mu.Lock()
		c := q.change(q.s.promised())
		for _, p := range found {
			var did bool
			if did, err = do(c, p); err == nil {
				err = c.roomy()
			}
			if err != nil {
				break
			}
			if did {
				n++
			}
		}
		if err = c.commit(err); err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return n, err
		}
		from = found[len(found)-1].after()
	}
}

// slice is the next few places of a range.
func (q *queue) slice(kind byte, from, to pos) ([]pos, error) {
	it, err := q.s.db.NewIter(iterBounds(
		appendPosKey(nil, kind, q.num, from), appendPosKey(nil, kind, q.num, to)))
	if err != nil {
		return nil, q.s.broken(err)
	}
	defer it.Close()
	var found []pos
	for valid := it.First(); valid && len(found) < sweepSlice; valid = it.Next() {
		p, _ := parsePosKey(it.Key())
		found = append(found, p)
	}
	if err := it.Error(); err != nil {
		return nil, q.s.readFailed(err)
	}
	return found, nil
}
