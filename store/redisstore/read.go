package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/duetime/duetime/store"
)

// letter is how scripts call a state.
func letter(state store.State) string {
	switch state {
	case store.StateScheduled:
		return "s"
	case store.StateReady:
		return "r"
	case store.StateLeased:
		return "l"
	}
	return "d"
}

// place is where a task stands in a list: by due time, then by sequence. After
// it come those that are greater.
type place struct {
	due int64
	seq uint64
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.due, o.due), cmp.Compare(p.seq, o.seq))
}

// listed is a task of a page to be.
type listed struct {
	place
	id   string
	task store.Task
	bad  bool // its record can not be read
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, r store.ListRequest) (store.ListPage, error) {
	if err := r.Check(); err != nil {
		return store.ListPage{}, err
	}
	from := place{due: -1}
	if r.Cursor != "" {
		var err error
		if from, err = parseCursor(&r); err != nil {
			return store.ListPage{}, err
		}
	}
	if err := s.enter(ctx); err != nil {
		return store.ListPage{}, err
	}
	defer s.ops.RUnlock()
	var page store.ListPage
	err := s.onAll(ctx, r.Queue, func(k *known, shards []*shard) error {
		if err := s.expireAll(ctx, shards); err != nil {
			return err
		}
		var tasks []listed
		var more bool
		var err error
		if r.State == store.StateLeased {
			tasks, more, err = s.listLeased(ctx, &r, from, shards)
		} else {
			tasks, more, err = s.listByDue(ctx, &r, from, shards)
		}
		if err != nil {
			return err
		}
		page = store.ListPage{}
		var last place
		for _, t := range tasks {
			last = t.place
			if !t.bad {
				page.Tasks = append(page.Tasks, t.task)
			}
		}
		if more {
			page.Cursor = makeCursor(&r, last)
		}
		return nil
	})
	return page, err
}

// onAll calls f with the shards of a queue, again where their layout changed; not
// at all where there is no such queue.
func (s *Store) onAll(ctx context.Context, queue string, f func(k *known, shards []*shard) error) error {
	return s.retryLayout(ctx, queue, func() error {
		k, err := s.know(ctx, queue)
		if err != nil || k == nil {
			return err
		}
		return f(k, k.all())
	})
}

// listByDue merges the pages of all shards.
func (s *Store) listByDue(ctx context.Context, r *store.ListRequest, from place, shards []*shard) (all []listed, more bool, err error) {
	payloads := "0"
	if r.Payloads {
		payloads = "1"
	}
	for _, sh := range shards {
		at := from
		for got := 0; got < r.Limit; {
			reply, err := s.one(ctx, call{s.scripts().list, sh, []string{
				letter(r.State), strconv.FormatInt(at.due, 10), strconv.FormatUint(at.seq, 10), strconv.Itoa(r.Limit - got), payloads, strconv.Itoa(sliceBytes),
			}})
			if err != nil {
				return nil, false, err
			}
			now := reply.now()
			s.sawClock(now)
			const head = 5
			for v := head; v+2 < len(reply.values); v += 3 {
				t := listed{id: reply.text(v)}
				rec, err := readRecord(reply.text(v+2), r.Payloads)
				at = place{reply.number(v + 1), rec.seq}
				t.place = at
				if t.bad = err != nil; !t.bad {
					t.task = rec.task
					t.task.Queue, t.task.ID, t.task.State = r.Queue, t.id, r.State
				}
				all = append(all, t)
				got++
			}
			if reply.number(4) == 0 {
				break
			}
			if len(reply.values) == head { // more, and none of it can be shown
				break
			}
			more = more || got == r.Limit
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return a.compare(b.place) })
	if len(all) > r.Limit {
		all, more = all[:r.Limit], true
	}
	return all, more, nil
}

// listLeased reads all leases, of which there are as many as busy hands, and
// looks up those of the page: they lie by their ends, and lists are by due time.
func (s *Store) listLeased(ctx context.Context, r *store.ListRequest, from place, shards []*shard) (page []listed, more bool, err error) {
	var all []listed
	for _, sh := range shards {
		score, after := "-1", "0"
		for {
			reply, err := s.one(ctx, call{s.scripts().list, sh, []string{"l", score, after, "1000", "0", strconv.Itoa(sliceBytes)}})
			if err != nil {
				return nil, false, err
			}
			const head = 5
			for v := head; v+2 < len(reply.values); v += 3 {
				l, err := readLease(reply.text(v + 2))
				if err != nil {
					continue
				}
				score = strconv.FormatInt(reply.number(v+1), 10)
				after = strconv.FormatUint(l.seq, 10)
				if t := (listed{id: reply.text(v), place: place{l.due.UnixMilli(), l.seq}}); t.compare(from) > 0 {
					all = append(all, t)
				}
			}
			if reply.number(4) == 0 || len(reply.values) == head {
				break
			}
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return a.compare(b.place) })
	if len(all) > r.Limit {
		all, more = all[:r.Limit], true
	}
	items := make([]int, len(all))
	for i := range items {
		items[i] = i
		all[i].bad = true
	}
	err = s.byID(ctx, s.lookUp(r.Queue, func(i int) string { return all[i].id }, func(i int, t *store.Task, err error) {
		// It may have ended since.
		if err != nil || t == nil || t.State != store.StateLeased {
			return
		}
		if !r.Payloads {
			t.Payload, t.Headers = nil, nil
		}
		all[i].task, all[i].bad = *t, false
	}), items)
	return all, more, err
}

// one carries out one call.
func (s *Store) one(ctx context.Context, c call) (*reply, error) {
	replies, err := s.run(ctx, []call{c})
	if err != nil {
		return nil, err
	}
	return &replies[0], replies[0].check()
}

// A cursor is the place of the last task on the page before it, and a checksum
// over it and the request, so that one that was damaged, or made for another
// queue or state, is told apart.
func makeCursor(r *store.ListRequest, p place) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.due))
	b = binary.BigEndian.AppendUint64(b, p.seq)
	b = binary.BigEndian.AppendUint32(b, cursorSum(r, b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(r *store.ListRequest) (place, error) {
	b, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	if err != nil || len(b) != 20 || binary.BigEndian.Uint32(b[16:]) != cursorSum(r, b[:16]) {
		return place{}, store.NewInputError("cursor", r.Cursor, "is not one that a list of %s tasks of queue %q returned", r.State, r.Queue)
	}
	return place{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}, nil
}

func cursorSum(r *store.ListRequest, b []byte) uint32 {
	sum := crc32.ChecksumIEEE(b)
	return crc32.Update(sum, crc32.IEEETable, append([]byte{byte(r.State)}, r.Queue...))
}

// count is what one shard says of itself; see lua/stats.lua.
type count struct {
	store.Stats
	mended, orphans, aside int64
	expired                bool // there may be more leases that are over
}

func (s *Store) count(ctx context.Context, shards []*shard) ([]count, error) {
	calls := make([]call, len(shards))
	for i, sh := range shards {
		calls[i] = call{s.scripts().stats, sh, nil}
	}
	replies, err := s.run(ctx, calls)
	if err != nil {
		return nil, err
	}
	counts := make([]count, len(shards))
	at := func(ms int64) time.Time {
		if ms < 0 {
			return time.Time{}
		}
		return fromMilli(ms)
	}
	for i := range replies {
		r := &replies[i]
		if err := r.check(); err != nil {
			return nil, err
		}
		s.sawClock(r.now())
		counts[i] = count{
			Stats: store.Stats{
				Scheduled: r.number(4), Ready: r.number(5), Leased: r.number(6), Dead: r.number(7),
				OldestDue: at(r.number(8)), NextDue: at(r.number(9)),
			},
			mended: r.number(10), orphans: r.number(11), aside: r.number(12),
			expired: r.number(3) == expireSlice,
		}
	}
	return counts, nil
}

// expireAll ends the leases of shards that are over.
func (s *Store) expireAll(ctx context.Context, shards []*shard) error {
	for len(shards) > 0 {
		counts, err := s.count(ctx, shards)
		if err != nil {
			return err
		}
		var rest []*shard
		for i := range counts {
			if counts[i].expired {
				rest = append(rest, shards[i])
			}
		}
		shards = rest
	}
	return nil
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if err := store.CheckQueue(queue); err != nil {
		return store.Stats{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Stats{}, err
	}
	defer s.ops.RUnlock()
	var sum store.Stats
	err := s.onAll(ctx, queue, func(k *known, shards []*shard) error {
		counts, err := s.count(ctx, shards)
		if err == nil && slices.ContainsFunc(counts, func(c count) bool { return c.expired }) {
			if err = s.expireAll(ctx, shards); err == nil {
				counts, err = s.count(ctx, shards)
			}
		}
		if err != nil {
			return err
		}
		sum = store.Stats{}
		for _, c := range counts {
			sum.Scheduled += c.Scheduled
			sum.Ready += c.Ready
			sum.Leased += c.Leased
			sum.Dead += c.Dead
			sum.OldestDue = earlier(sum.OldestDue, c.OldestDue)
			sum.NextDue = earlier(sum.NextDue, c.NextDue)
		}
		return nil
	})
	return sum, err
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
