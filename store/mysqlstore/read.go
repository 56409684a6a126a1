package mysqlstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/duetime/duetime/store"
)

// statsCount is from how many tasks on, that are ready but not yet counted as
// ahead, Stats moves the mark on; statsSlice is how many it counts while the
// queue waits for it.
const (
	statsCount = 500
	statsSlice = 20_000
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	if err := s.enter(ctx, len(keys)); err != nil {
		return nil, err
	}
	defer s.leave()
	results := make([]store.Result, len(keys))
	names := make(map[string]bool)
	var good []int
	for i, k := range keys {
		if err := store.CheckKey(k.Queue, k.ID); err != nil {
			results[i] = refused(err)
			continue
		}
		results[i].Outcome = store.NotFound
		names[k.Queue] = true
		good = append(good, i)
	}
	found, err := s.find(ctx, names)
	if err != nil {
		return nil, err
	}
	where := make(map[taskKey][]int)
	var list []taskKey
	for _, i := range good {
		if q := found[keys[i].Queue]; q != nil {
			k := taskKey{q.id, keys[i].ID}
			if where[k] == nil {
				list = append(list, k)
			}
			where[k] = append(where[k], i)
		}
	}
	for len(list) > 0 {
		n := min(len(list), keysPerStatement)
		if err := s.getSlice(ctx, list[:n], where, results); err != nil {
			return nil, err
		}
		list = list[n:]
	}
	return results, nil
}

func (s *Store) getSlice(ctx context.Context, list []taskKey, where map[taskKey][]int, results []store.Result) error {
	return s.with(ctx, func(ctx context.Context, l *link) error {
		views := make(map[uint32]*view)
		var rows []*row
		l.add("queue_read", queueIDs(list, func(k taskKey) uint32 { return k.queueID }))
		l.clock()
		answers := []func(values) error{s.views(views), l.tell}
		answers = append(answers, l.byID("task_get", list, func(r *row) { rows = append(rows, r) })...)
		if err := l.send(ctx, answers...); err != nil {
			return err
		}
		for _, r := range rows {
			v := views[r.queueID]
			if r.expired(l.now) {
				r.expire(v.MaxLost)
			}
			for n, i := range where[taskKey{r.queueID, r.id}] {
				if n > 0 {
					r.payload = bytes.Clone(r.payload) // each caller's own
				}
				t := r.task(v.name, l.now)
				results[i] = store.Result{Outcome: store.Found, Task: &t}
			}
		}
		return nil
	})
}

// payloads reads the payloads that are not in the rows themselves. They never change: a task that takes the
// place of another has a number of its own.
func (l *link) payloads(ctx context.Context, rows []*row) error {
	by := make(map[uint64]*row)
	var seqs []uint64
	for _, r := range rows {
		if r.big {
			by[r.seq] = r
			seqs = append(seqs, r.seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	l.add("payloads", seqs)
	return l.send(ctx, func(v values) error {
		by[v.uint(0)].unpack(v.bytes(1))
		return nil
	})
}

// sweep ends the leases of a queue that are over, so that what is read next is
// true. Where there are none it costs two looks and no lock.
func (s *Store) sweep(ctx context.Context, q *queue) (now time.Time, err error) {
	for {
		_, heads, err := s.heads(ctx, []*queue{q})
		if err != nil {
			return now, err
		}
		now = heads[0].now
		if heads[0].leased > now.UnixMilli() {
			return now, nil
		}
		more, err := s.sweepSlice(ctx, q, heads[0].leaseStart())
		if err != nil || !more {
			return now, err
		}
	}
}

func (s *Store) sweepSlice(ctx context.Context, q *queue, from int64) (more bool, err error) {
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		views := make(map[uint32]*view)
		l.begin()
		l.add("queue_share", []uint32{q.id})
		l.clock()
		if err := l.send(ctx, s.views(views), l.tell); err != nil {
			return err
		}
		var edits []*edit
		l.add("claim_expired", q.id, from, l.now.UnixMilli(), expireSlice)
		if err := l.send(ctx, func(v values) error {
			e := locked(scanRow(v))
			e.expire(views[q.id].MaxLost)
			edits = append(edits, e)
			return nil
		}); err != nil {
			return err
		}
		if len(edits) == 0 { // somebody else is at it
			more = false
			return l.undo(ctx)
		}
		more = true
		counts := countEdits(edits, views)
		l.write(edits)
		l.tally(counts)
		l.commit()
		if err := l.send(ctx); err != nil {
			return err
		}
		s.told(counts, views)
		return nil
	})
	return more, err
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx, 0); err != nil {
		return nil, err
	}
	defer s.leave()
	var names []string
	err := s.with(ctx, func(ctx context.Context, l *link) error {
		names = nil
		l.add("queue_names")
		return l.send(ctx, func(v values) error { names = append(names, v.string(0)); return nil })
	})
	return names, err
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, r store.ListRequest) (store.ListPage, error) {
	var page store.ListPage
	if err := r.Check(); err != nil {
		return page, err
	}
	cursor := pos{at: -1}
	if r.Cursor != "" {
		var err error
		if cursor, err = parseCursor(&r); err != nil {
			return page, err
		}
	}
	if err := s.enter(ctx, 0); err != nil {
		return page, err
	}
	defer s.leave()
	q, err := s.findOne(ctx, r.Queue)
	if err != nil || q == nil {
		return page, err
	}
	now, err := s.sweep(ctx, q)
	if err != nil {
		return page, err
	}
	var rows []*row
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		rows = nil
		from, to := cursor, int64(never)
		state := waiting
		switch r.State {
		case store.StateDead:
			state = dead
		case store.StateReady:
			to = now.UnixMilli()
		case store.StateScheduled:
			if end := (pos{now.UnixMilli(), never}); from.less(end) {
				from = end
			}
		}
		if r.State == store.StateLeased {
			l.add("list_leased", q.id, from.at, from.at, from.seq, r.Limit+1)
		} else {
			l.add("list", q.id, state, to, from.at, from.at, from.seq, r.Limit+1)
		}
		if err := l.send(ctx, func(v values) error { rows = append(rows, scanRow(v)); return nil }); err != nil {
			return err
		}
		if r.Payloads {
			return l.payloads(ctx, rows[:min(len(rows), r.Limit)])
		}
		return nil
	})
	if err != nil {
		return page, err
	}
	if len(rows) > r.Limit {
		rows = rows[:r.Limit]
		last := rows[len(rows)-1]
		page.Cursor = makeCursor(&r, pos{last.due, last.seq})
	}
	for _, row := range rows {
		if r.Payloads && !row.loaded {
			continue // gone in that moment
		}
		if !r.Payloads {
			row.headers, row.payload = nil, nil
		}
		page.Tasks = append(page.Tasks, row.task(q.name, now))
	}
	return page, nil
}

// A cursor is the place of the last task on the page before it, with a checksum
// that also covers what was listed: a cursor is good for that only.
func makeCursor(r *store.ListRequest, p pos) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.at))
	b = binary.BigEndian.AppendUint64(b, p.seq)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, cursorSum(r, b)))
}

func parseCursor(r *store.ListRequest) (pos, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(r.Cursor)
	if err != nil || len(b) != 20 || binary.BigEndian.Uint32(b[16:]) != cursorSum(r, b[:16]) {
		return pos{}, store.NewInputError("cursor", r.Cursor, "is not one that a list of %s tasks of queue %q returned", r.State, r.Queue)
	}
	return pos{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}, nil
}

func cursorSum(r *store.ListRequest, place []byte) uint32 {
	sum := crc32.ChecksumIEEE(place)
	return crc32.Update(sum, crc32.IEEETable, append([]byte{byte(r.State)}, r.Queue...))
}

// Stats implements store.Store. It adds up the queue's counters, of which there
// are a few dozen rows, and counts only tasks that became ready since it was asked
// last.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	var st store.Stats
	if err := store.CheckQueue(name); err != nil {
		return st, err
	}
	if err := s.enter(ctx, 0); err != nil {
		return st, err
	}
	defer s.leave()
	q, err := s.findOne(ctx, name)
	if err != nil || q == nil {
		return st, err
	}
	if _, err := s.sweep(ctx, q); err != nil {
		return st, err
	}
	for first := true; ; first = false {
		var uncounted int64
		err := s.with(ctx, func(ctx context.Context, l *link) (err error) {
			st, uncounted, err = s.sum(ctx, l, q)
			return err
		})
		if err != nil || uncounted < statsCount || !first && uncounted < statsSlice {
			return st, err
		}
		if err := s.advance(ctx, q, uncounted >= statsSlice); err != nil {
			return st, err
		}
	}
}

// sum reads the counters. uncounted is how many ready tasks it had to count.
func (s *Store) sum(ctx context.Context, l *link, q *queue) (st store.Stats, uncounted int64, err error) {
	var m mark
	views := make(map[uint32]*view)
	answers := l.mark(q.id, false, &m)
	l.add("queue_read", []uint32{q.id})
	l.clock()
	if err := l.send(ctx, append(answers, s.views(views), l.tell)...); err != nil {
		return st, 0, err
	}
	now, counted := l.now.UnixMilli(), views[q.id].counted
	moved := false
	from := m.start()
	l.add("tally_sum", q.id, counted, now, q.id, now, counted, q.id)
	l.add("waiting_from", q.id, from.at, from.at, from.seq, 1)
	l.add("waiting_from", q.id, now, now, uint64(never), 1)
	err = l.send(ctx,
		func(v values) error {
			moved = v.int(0) != counted
			ready := v.int(2) + v.int(5) - v.int(6)
			uncounted = v.int(5)
			st.Scheduled, st.Ready, st.Leased, st.Dead = v.int(1)-ready, ready, v.int(3), v.int(4)
			return nil
		},
		func(v values) error {
			if at := v.int(0); at <= now {
				st.OldestDue = milli(at)
			}
			return nil
		},
		func(v values) error { st.NextDue = milli(v.int(0)); return nil })
	if err == nil && moved {
		err = errRepeat // another Stats has moved the mark since it was read
	}
	return st, uncounted, err
}

// advance moves the mark up to which ready tasks are counted on towards now. No
// transaction may be half done then: where patient is not set, it leaves it for
// another time rather than wait for one.
func (s *Store) advance(ctx context.Context, q *queue, patient bool) error {
	return s.with(ctx, func(ctx context.Context, l *link) error {
		lock := "queue_trylock"
		if patient {
			lock = "queue_lock"
		}
		views := make(map[uint32]*view)
		l.begin()
		l.add(lock, q.id)
		l.clock()
		if err := l.send(ctx, s.views(views), l.tell); err != nil {
			return err
		}
		v := views[q.id]
		if v == nil || v.counted > l.now.UnixMilli() {
			return l.undo(ctx)
		}
		to, ahead := l.now.UnixMilli()+1, int64(0)
		l.add("counted_step", q.id, v.counted, to, statsSlice)
		if err := l.send(ctx, func(row values) error {
			if at := row.int(0); at > v.counted {
				to = at
			}
			return nil
		}); err != nil {
			return err
		}
		l.add("tally_advance", q.id, v.counted, to, q.id, v.counted, to)
		if err := l.send(ctx, func(row values) error { ahead = row.int(0); return nil }); err != nil {
			return err
		}
		c := newCount()
		c.ahead = ahead
		l.add("queue_counted", to, q.id)
		l.tally(map[uint32]*count{q.id: c})
		l.commit()
		return l.send(ctx)
	})
}
