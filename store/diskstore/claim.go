package diskstore

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/duetime/duetime/store"
)

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := store.CheckBatch(len(requests)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	results := make([]store.ClaimResult, len(requests))
	err := perQueue(len(requests), func(i int) string { return requests[i].Queue }, func(name string, items []int) error {
		good := items[:0:0]
		for _, i := range items {
			if results[i].Err = requests[i].Check(); results[i].Err == nil {
				good = append(good, i)
			}
		}
		q := s.queue(name)
		if q == nil {
			for _, i := range good {
				results[i].Now = s.now().UTC()
			}
			return nil
		}
		return q.claim(requests, good, results)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (q *queue) claim(requests []store.ClaimRequest, items []int, results []store.ClaimResult) error {
	if len(items) == 0 {
		return nil
	}
	if err := q.expire(q.s.now().UnixMilli()); err != nil {
		return err
	}
	q.mu.Lock()
	// The clock is read under the lock, so that a claim that waited for it does
	// not hand out by an old time.
	now := q.s.now()
	w := walk{q: q, c: q.change(soft), now: now, limit: q.limit(now), bytes: store.MaxClaimBytes}
	var err error
	for _, i := range items {
		if err = w.fill(&requests[i], &results[i]); err != nil {
			break
		}
		results[i].Next, results[i].Now = q.next(), now.UTC()
	}
	w.close()
	return w.c.commit(err)
}

// limit is the latest due time, in milliseconds, that may be handed out now; -1
// where nothing may.
func (q *queue) limit(now time.Time) int64 {
	if q.settings.Paused {
		return -1
	}
	last := q.release.Last(now)
	if last.IsZero() {
		return -1
	}
	return last.UnixMilli()
}

// walk goes over a queue's pending tasks in order, for one call of Claim.
type walk struct {
	q     *queue
	c     *change
	now   time.Time
	limit int64
	bytes int

	it    *pebble.Iterator // at the first task behind the cursor, once opened
	valid bool
	upper []byte
}

func (w *walk) close() {
	if w.it != nil {
		_ = w.it.Close()
	}
}

// fill hands tasks to one request.
func (w *walk) fill(r *store.ClaimRequest, res *store.ClaimResult) error {
	for len(res.Tasks) < r.Max {
		first, isEarly := w.q.early.min()
		behind, ok, err := w.peek()
		if err != nil {
			return err
		}
		if ok && (!isEarly || behind.less(first)) {
			if behind.due > w.limit {
				return nil
			}
			full, err := w.take(behind, w.it.Value(), r, res)
			if err != nil || full {
				return err
			}
			w.q.pass(behind)
			w.valid = w.it.Next()
			if err := w.settleHead(); err != nil {
				return err
			}
			continue
		}
		if !isEarly || first.due > w.limit {
			return nil
		}
		if full, err := w.takeEarly(first, r, res); err != nil || full {
			return err
		}
	}
	return nil
}

// peek is the first task at or behind the cursor, if it may be due.
func (w *walk) peek() (pos, bool, error) {
	if w.q.headDue > w.limit {
		return pos{}, false, nil
	}
	if w.it == nil {
		_, w.upper = bounds(kindTask, w.q.num)
		lower := appendPosKey(nil, kindTask, w.q.num, w.q.cursor)
		it, err := w.q.s.db.NewIter(iterBounds(lower, w.upper))
		if err != nil {
			return pos{}, false, w.q.s.broken(err)
		}
		w.it, w.valid = it, it.First()
	}
	if err := w.settleHead(); err != nil || !w.valid {
		return pos{}, false, err
	}
	p, _ := parsePosKey(w.it.Key())
	return p, true, nil
}

// settleHead passes over tasks that are leased, and notes when the first that is
// not is due.
func (w *walk) settleHead() error {
	for w.valid {
		p, _ := parsePosKey(w.it.Key())
		if w.q.leases.bySeq[p.seq] == nil {
			w.q.headDue = p.due
			return nil
		}
		w.q.pass(p)
		w.valid = w.it.Next()
	}
	if err := w.it.Error(); err != nil {
		return w.q.s.readFailed(err)
	}
	w.q.headDue = never
	return nil
}

// take hands out one pending task. It says full, and does nothing, where its
// payload is too much for this call.
func (w *walk) take(p pos, value []byte, r *store.ClaimRequest, res *store.ClaimResult) (full bool, err error) {
	q := w.q
	var rec record
	if rec.decode(value, true) != nil {
		q.drop(p)
		return false, w.c.setAside(p, "", nil)
	}
	if w.bytes < len(rec.payload) && w.bytes < store.MaxClaimBytes {
		return true, nil
	}
	w.bytes -= len(rec.payload)
	q.drop(p)
	at := place{pos: p}
	out := store.Lease{ClaimedAt: w.now.UTC()}
	if r.AtMostOnce {
		w.c.remove(rec.id, p, uint32(len(value)))
		out.Task = q.task(&rec, at, w.now)
		out.State, out.Worker = store.StateLeased, store.CleanWorker(r.Worker)
	} else {
		duration := r.Lease
		if duration == 0 {
			duration = q.settings.Lease
		}
		l := &lease{
			pos: p, token: newToken(), until: store.CeilMilli(w.now.Add(duration)).UnixMilli(),
			id: rec.id, worker: store.CleanWorker(r.Worker), size: uint32(len(value)),
			generation: rec.generation, attempt: rec.failures + rec.lost + 1,
		}
		w.c.startLease(l)
		out.Task = q.task(&rec, at, w.now)
		out.Receipt = l.receipt(q.name)
	}
	res.Tasks = append(res.Tasks, out)
	return false, w.c.roomy()
}

// takeEarly hands out a task that lies before the cursor.
func (w *walk) takeEarly(p pos, r *store.ClaimRequest, res *store.ClaimResult) (full bool, err error) {
	var key [posKeyLen]byte
	value, closer, err := w.q.s.db.Get(appendPosKey(key[:0], kindTask, w.q.num, p))
	if err == pebble.ErrNotFound {
		w.q.drop(p)
		return false, w.c.setAside(p, "", nil)
	} else if err != nil {
		return false, w.q.s.readFailed(err)
	}
	defer closer.Close()
	return w.take(p, value, r, res)
}
