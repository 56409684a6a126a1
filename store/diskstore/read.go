package diskstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	if err := store.CheckBatch(len(keys)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	now := s.now()
	results := make([]store.Result, len(keys))
	for i, k := range keys {
		if err := store.CheckKey(k.Queue, k.ID); err != nil {
			results[i].Err = err
			continue
		}
		results[i].Outcome = store.NotFound
		q := s.queue(k.Queue)
		if q == nil {
			continue
		}
		if err := q.expire(now.UnixMilli()); err != nil {
			return nil, err
		}
		task, err := q.get(k.ID, now)
		switch {
		case err == errRecord: // this one only; the others are well
			results[i] = store.Result{Err: fmt.Errorf("queue %q, id %q: record: %w", k.Queue, k.ID, store.ErrCorrupt)}
		case err != nil:
			return nil, err
		case task != nil:
			results[i] = store.Result{Outcome: store.Found, Task: task}
		}
	}
	return results, nil
}

func (q *queue) get(id string, now time.Time) (*store.Task, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := finder{q: q}
	defer f.reset()
	at, there, err := f.find(id)
	if err != nil || !there {
		return nil, err
	}
	rec, _, err := q.read(at, true)
	if err == errGone {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	task := q.task(&rec, at, now)
	return &task, nil
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Stats{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Stats{}, err
	}
	defer s.ops.RUnlock()
	q := s.queue(name)
	if q == nil {
		return store.Stats{}, nil
	}
	now := s.now().UnixMilli()
	if err := q.expire(now); err != nil {
		return store.Stats{}, err
	}
	for {
		st, done, err := q.stats(now)
		if err != nil || done {
			return st, err
		}
		if err := ctx.Err(); err != nil {
			return store.Stats{}, err
		}
	}
}

// statsSlice is how many tasks Stats counts on before it lets others in.
const statsSlice = 20_000

// stats counts on to now; done where it got there.
func (q *queue) stats(now int64) (st store.Stats, done bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	end := pos{now, math.MaxUint64}.after()
	_, upper := bounds(kindTask, q.num)
	it, err := q.s.db.NewIter(iterBounds(appendPosKey(nil, kindTask, q.num, q.cursor), upper))
	if err != nil {
		return st, false, q.s.broken(err)
	}
	defer it.Close()
	ready := q.ahead
	if q.counted.less(end) {
		n := 0
		for valid := it.SeekGE(appendPosKey(nil, kindTask, q.num, q.counted)); valid; valid = it.Next() {
			p, _ := parsePosKey(it.Key())
			if !p.less(end) {
				break
			}
			if n++; n > statsSlice {
				q.counted = p
				return st, false, nil
			}
			if q.leases.bySeq[p.seq] == nil {
				q.ahead++
			}
		}
		if err := it.Error(); err != nil {
			return st, false, q.s.readFailed(err)
		}
		q.counted = end
		ready = q.ahead
	} else if end.less(q.counted) {
		// The clock went back: count what is beyond it off, for this answer only.
		for valid := it.SeekGE(appendPosKey(nil, kindTask, q.num, end)); valid; valid = it.Next() {
			p, _ := parsePosKey(it.Key())
			if !p.less(q.counted) {
				break
			}
			if q.leases.bySeq[p.seq] == nil {
				ready--
			}
		}
	}
	var early, later pos
	early.due, later.due = never, never
	for seq, due := range q.early.due {
		if due <= now {
			ready++
			early.due = min(early.due, due)
		} else if due < later.due {
			later = pos{due, seq}
		}
	}
	if p, ok := q.firstPending(it.First, it.Next, it.Key); ok && p.due <= now {
		early.due = min(early.due, p.due)
	}
	seek := func() bool { return it.SeekGE(appendPosKey(nil, kindTask, q.num, end)) }
	if p, ok := q.firstPending(seek, it.Next, it.Key); ok {
		later.due = min(later.due, p.due)
	}
	if err := it.Error(); err != nil {
		return st, false, q.s.readFailed(err)
	}
	st = store.Stats{Scheduled: q.pending - ready, Ready: ready, Leased: int64(q.leases.len()), Dead: q.dead}
	if early.due != never {
		st.OldestDue = milli(early.due)
	}
	if later.due != never {
		st.NextDue = milli(later.due)
	}
	return st, true, nil
}

// firstPending is the first task from an iterator's start that is not leased.
func (q *queue) firstPending(start, next func() bool, key func() []byte) (pos, bool) {
	for valid := start(); valid; valid = next() {
		p, _ := parsePosKey(key())
		if q.leases.bySeq[p.seq] == nil {
			return p, true
		}
	}
	return pos{}, false
}

// A list cursor is the place behind the last task of the page, with a checksum
// that also covers what was listed: a cursor is good for that only.
func encodeCursor(r *store.ListRequest, p pos) string {
	b := binary.AppendUvarint(nil, uint64(p.due))
	b = binary.AppendUvarint(b, p.seq)
	return base64.RawURLEncoding.EncodeToString(binary.LittleEndian.AppendUint32(b, cursorSum(r, b)))
}

func cursorSum(r *store.ListRequest, b []byte) uint32 {
	sum := crc32.Update(uint32(r.State), castagnoli, []byte(r.Queue))
	return crc32.Update(sum, castagnoli, b)
}

func decodeCursor(r *store.ListRequest) (pos, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(r.Cursor)
	if n := len(b) - 4; err == nil && n > 0 && cursorSum(r, b[:n]) == binary.LittleEndian.Uint32(b[n:]) {
		d := decoder{b: b[:n]}
		if p := (pos{int64(d.number()), d.number()}); !d.bad && len(d.b) == 0 {
			return p, nil
		}
	}
	return pos{}, store.NewInputError("cursor", r.Cursor, "is not a cursor that an earlier page of this list gave")
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, r store.ListRequest) (store.ListPage, error) {
	if err := r.Check(); err != nil {
		return store.ListPage{}, err
	}
	var from pos
	if r.Cursor != "" {
		var err error
		if from, err = decodeCursor(&r); err != nil {
			return store.ListPage{}, err
		}
	}
	if err := s.enter(ctx); err != nil {
		return store.ListPage{}, err
	}
	defer s.ops.RUnlock()
	q := s.queue(r.Queue)
	if q == nil {
		return store.ListPage{}, nil
	}
	now := s.now()
	if err := q.expire(now.UnixMilli()); err != nil {
		return store.ListPage{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.State == store.StateLeased {
		return q.listLeased(&r, from, now)
	}
	return q.listRange(&r, from, now)
}

// listRange lists tasks that lie together in a range of keys.
func (q *queue) listRange(r *store.ListRequest, from pos, now time.Time) (store.ListPage, error) {
	var page store.ListPage
	kind, end := byte(kindTask), pos{now.UnixMilli(), math.MaxUint64}.after()
	_, upper := bounds(kindTask, q.num)
	switch r.State {
	case store.StateReady:
		if low := q.low(); from.less(low) {
			from = low
		}
		upper = appendPosKey(nil, kindTask, q.num, end)
	case store.StateScheduled:
		if from.less(end) {
			from = end
		}
	case store.StateDead:
		kind = kindDead
		_, upper = bounds(kindDead, q.num)
	}
	it, err := q.s.db.NewIter(iterBounds(appendPosKey(nil, kind, q.num, from), upper))
	if err != nil {
		return page, q.s.broken(err)
	}
	defer it.Close()
	for valid := it.First(); valid; valid = it.Next() {
		p, _ := parsePosKey(it.Key())
		if kind == kindTask && q.leases.bySeq[p.seq] != nil {
			continue
		}
		if len(page.Tasks) == r.Limit {
			page.Cursor = encodeCursor(r, p)
			break
		}
		var rec record
		if rec.decode(it.Value(), r.Payloads) != nil {
			continue // the claim that comes to it sets it aside
		}
		page.Tasks = append(page.Tasks, q.task(&rec, place{p, kind == kindDead}, now))
	}
	if err := it.Error(); err != nil {
		return page, q.s.readFailed(err)
	}
	return page, nil
}

func (q *queue) listLeased(r *store.ListRequest, from pos, now time.Time) (store.ListPage, error) {
	var page store.ListPage
	var out []pos
	for _, l := range q.leases.bySeq {
		if !l.pos.less(from) {
			out = append(out, l.pos)
		}
	}
	slices.SortFunc(out, func(a, b pos) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
	})
	for _, p := range out {
		if len(page.Tasks) == r.Limit {
			page.Cursor = encodeCursor(r, p)
			break
		}
		rec, _, err := q.read(place{pos: p}, r.Payloads)
		if unreadable(err) {
			continue
		} else if err != nil {
			return page, err
		}
		page.Tasks = append(page.Tasks, q.task(&rec, place{pos: p}, now))
	}
	return page, nil
}
