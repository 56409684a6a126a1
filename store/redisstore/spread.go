package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/duetime/duetime/store"
)

// heads is what is known of the shards of a queue that has several: so that
// whoever waits need not ask each of them each second. It is right as long as
// the bell, a counter beside the queue's settings, is what it was: whoever makes
// something due earlier on a shard rings it before he says so. One shard in turn
// is asked all the same, in case somebody died between the two.
type heads struct {
	bell string
	due  []int64 // when the first task is due; none: there is none
	ends []int64 // when the first lease ends
	late []bool  // the first lease may end later: this process has ended some since
	turn int
}

const (
	none    = -1
	unknown = -2

	// The clocks here and there may differ by a little; a shard is asked early
	// rather than late.
	slack = 2 * time.Millisecond

	// Clocks of shards that differ by less are taken for the same, which has moved on
	// between two looks.
	sameClock = 50 * time.Millisecond
)

func newHeads(n int) heads {
	h := heads{due: make([]int64, n), ends: make([]int64, n), late: make([]bool, n)}
	h.forget()
	return h
}

func (h *heads) forget() {
	for i := range h.due {
		h.due[i], h.ends[i], h.late[i] = unknown, unknown, false
	}
}

// spread claims from the shards of a queue that has several: it looks at what is
// first on each, and then takes what is first of all. It returns those that are
// not served yet where it could not go on.
func (c *claim) spread(items []int) ([]int, error) {
	k, bell, err := c.s.reloadBell(c.ctx, c.queue)
	if err != nil || k == nil {
		return items, err
	}
	c.k = k
	if c.seqs == nil {
		c.seqs = make(map[int][]uint64)
	}
	if len(k.shards) == 1 && k.old == nil {
		return items, errAgain
	}
	shards := k.all()
	q := c.s.queue(c.queue)
	q.mu.Lock()
	if len(q.heads.due) != len(shards) {
		q.heads = newHeads(len(shards))
	}
	if q.heads.bell != bell {
		q.heads.forget()
		q.heads.bell = bell
	}
	q.mu.Unlock()
	for n, i := range items {
		for first := true; len(c.results[i].Tasks) < c.requests[i].Max && *c.room > 0; first = false {
			got, more, err := c.round(i, shards, first)
			if err != nil {
				return items[n:], err
			}
			// What became due meanwhile is for the next claim: these do not wait for it.
			if got == 0 || !more {
				break
			}
		}
		// What others scheduled between two rounds may be older than what the first
		// brought.
		if tasks := c.results[i].Tasks; len(tasks) == len(c.seqs[i]) {
			sort.Sort(&inOrder{tasks, c.seqs[i]})
		}
		c.foresee(i, shards)
	}
	return nil, nil
}

// candidates are the shards that may have something now, by their place. Where
// none may, the first round of a claim has time for those of which too little is
// known, or one in turn. others is when the first of those that are not asked is
// due, as far as is known; none where nothing is.
func (c *claim) candidates(shards []*shard, first bool, ahead int64) (some []int, others int64) {
	q := c.s.queue(c.queue)
	now := c.s.now().Add(slack).UnixMilli()
	q.mu.Lock()
	defer q.mu.Unlock()
	others = none
	if len(q.heads.due) != len(shards) { // the layout changed meanwhile
		return nil, others
	}
	for n := range shards {
		due, ends := q.heads.due[n], q.heads.ends[n]
		if due == unknown || due >= 0 && due <= now+ahead || ends >= 0 && ends <= now {
			some = append(some, n)
		} else if due >= 0 && (others == none || due < others) {
			others = due
		}
	}
	if some != nil || !first {
		return some, others
	}
	for n, late := range q.heads.late {
		if late {
			some = append(some, n)
		}
	}
	if some == nil {
		some = []int{q.heads.turn % len(shards)}
		q.heads.turn++
	}
	return some, others
}

// alone says which shard is the only one that may have something now, and until
// when what it has is before all that the others have: then it need not be
// looked at before something is taken from it.
func (c *claim) alone(shards []*shard, ahead int64) (place int, bound int64, ok bool) {
	q := c.s.queue(c.queue)
	now := c.s.now().UnixMilli()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heads.due) != len(shards) {
		return 0, 0, false
	}
	place, bound = none, store.MaxTime.UnixMilli()
	for n := range shards {
		due, ends := q.heads.due[n], q.heads.ends[n]
		switch {
		case due == unknown || ends >= 0 && ends <= now+slack.Milliseconds():
			return 0, 0, false // what comes back may be older than anything
		case due < 0:
		case due > now+ahead:
			bound = min(bound, due-1)
		case place != none:
			return 0, 0, false
		default:
			place = n
		}
	}
	return place, bound, place != none
}

// entry is a task that is due, as peek shows it.
type entry struct {
	due, seq int64
	bytes    int
	shard    int
}

// round claims once for one request, and says how many it got, and whether there
// was more than it asked for.
func (c *claim) round(i int, shards []*shard, first bool) (got int, more bool, err error) {
	if c.k.settings.Paused {
		return 0, false, nil
	}
	r, res := &c.requests[i], &c.results[i]
	want := min(claimItems, r.Max-len(res.Tasks))
	window, ahead := c.window(), c.ahead(r)
	if place, bound, ok := c.alone(shards, ahead); ok {
		got, err := c.takeFrom(i, shards, map[int]int{place: want}, window, bound, min(claimBytes, *c.room))
		q := c.s.queue(c.queue)
		q.mu.Lock()
		defer q.mu.Unlock()
		left := int64(none)
		if place < len(q.heads.due) {
			left = q.heads.due[place]
		}
		return got, left >= 0 && left <= min(bound, res.Now.UnixMilli()+ahead), err
	}
	places, others := c.candidates(shards, first, ahead)
	if len(places) == 0 {
		return 0, false, nil
	}
	each := min(want, 2*want/len(places)+8)
	peeks := make([]call, len(places))
	for n, p := range places {
		peeks[n] = call{c.s.scripts().peek, shards[p], []string{strconv.Itoa(each), window[0], window[1], strconv.FormatInt(ahead, 10)}}
	}
	replies, err := c.s.run(c.ctx, peeks)
	if err != nil {
		return 0, false, err
	}
	var entries []entry
	// A shard that showed all it may has more after the last it showed.
	var horizon *entry
	earliest, latest := store.MaxTime, time.Time{}
	for n := range replies {
		reply := &replies[n]
		if err := reply.check(); err != nil {
			return 0, false, err
		}
		if again, err := c.outdated(shards[places[n]], reply); again || err != nil {
			return 0, false, cmp.Or(err, errAgain)
		}
		now := reply.now()
		c.s.sawClock(now)
		res.Now = now
		if now.Before(earliest) {
			earliest = now
		}
		if now.After(latest) {
			latest = now
		}
		c.saw(places[n], reply.number(4), reply.number(5))
		if reply.woke() {
			c.s.tick(c.queue)
		}
		const head = 6
		for v := head; v+2 < len(reply.values); v += 3 {
			entries = append(entries, entry{reply.number(v), reply.number(v + 1), int(reply.number(v + 2)), places[n]})
		}
		if (len(reply.values)-head)/3 == each {
			e := entries[len(entries)-1]
			if horizon == nil || e.before(horizon) {
				horizon = &e
			}
		}
		if reply.number(3) == expireSlice { // there may be more that came back
			c.saw(places[n], unknown, unknown)
			more = true
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.compare(&b) })
	// The shards were looked at one after the other. What came due on one after
	// another was looked at has to wait for the next round, or what came due there
	// just before would go out after it. Where clocks differ by much, being on time
	// comes before order.
	last := store.MaxTime.UnixMilli()
	if latest.Sub(earliest) < sameClock {
		last = earliest.UnixMilli() + ahead
		if others != none {
			last = min(last, others)
		}
	}
	counts := make(map[int]int)
	bytes, bound := 0, int64(0)
	for n := range entries {
		e := &entries[n]
		if bytes += e.bytes; n == want || n > 0 && bytes > min(claimBytes, *c.room) || e.due > last || horizon != nil && horizon.before(e) {
			more = true
			break
		}
		counts[e.shard]++
		bound = e.due
	}
	if len(counts) == 0 {
		return 0, false, nil
	}
	// By bytes they are chosen already.
	got, err = c.takeFrom(i, shards, counts, window, bound, store.MaxClaimBytes)
	return got, more || horizon != nil, err
}

func (e *entry) compare(o *entry) int {
	return cmp.Or(cmp.Compare(e.due, o.due), cmp.Compare(e.seq, o.seq))
}
func (e *entry) before(o *entry) bool { return e.compare(o) < 0 }

// takeFrom claims from shards as many as counts says, of what is due at bound at
// the latest.
func (c *claim) takeFrom(i int, shards []*shard, counts map[int]int, window [2]string, bound int64, bytes int) (int, error) {
	before := len(c.results[i].Tasks)
	var places []int
	var calls []call
	var tokens []string
	for p := range shards {
		if counts[p] == 0 {
			continue
		}
		call, token := c.call(shards[p], &c.requests[i], counts[p], window, strconv.FormatInt(bound, 10), bytes)
		places, calls, tokens = append(places, p), append(calls, call), append(tokens, token)
	}
	replies, err := c.s.run(c.ctx, calls)
	if err != nil {
		return 0, err
	}
	var failed error
	for n := range replies {
		if _, err := c.take(i, shards[places[n]], &replies[n], tokens[n]); err != nil {
			failed = err
			continue
		}
		c.saw(places[n], replies[n].number(4), replies[n].number(5))
	}
	got := len(c.results[i].Tasks) - before
	if got == 0 && failed != nil {
		return 0, failed
	}
	return got, nil
}

// inOrder sorts tasks by due time, then by sequence.
type inOrder struct {
	tasks []store.Lease
	seqs  []uint64
}

func (o *inOrder) Len() int { return len(o.tasks) }
func (o *inOrder) Swap(i, j int) {
	o.tasks[i], o.tasks[j] = o.tasks[j], o.tasks[i]
	o.seqs[i], o.seqs[j] = o.seqs[j], o.seqs[i]
}

func (o *inOrder) Less(i, j int) bool {
	if c := o.tasks[i].Due.Compare(o.tasks[j].Due); c != 0 {
		return c < 0
	}
	return o.seqs[i] < o.seqs[j]
}

// saw notes what is first on a shard.
func (c *claim) saw(place int, due, ends int64) {
	q := c.s.queue(c.queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	if place < len(q.heads.due) {
		q.heads.due[place], q.heads.ends[place], q.heads.late[place] = due, ends, false
	}
}

// foresee says when the next claim might get something.
func (c *claim) foresee(i int, shards []*shard) {
	res := &c.results[i]
	q := c.s.queue(c.queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	res.Next = time.Time{}
	if len(q.heads.due) != len(shards) {
		res.Next = res.Now
		return
	}
	for n := range shards {
		if q.heads.due[n] == unknown {
			if !c.k.settings.Paused {
				res.Next = res.Now
			}
			return
		}
		at := c.k.nextClaim(res.Now, q.heads.due[n], q.heads.ends[n])
		if !at.IsZero() && (res.Next.IsZero() || at.Before(res.Next)) {
			res.Next = at
		}
	}
}

// touched notes that what is known of some shards is old, because this process
// changed them.
func (s *Store) touched(queue string, k *known, calls []call) {
	s.changed(queue, k, calls, func(h *heads, n int) { h.due[n], h.ends[n], h.late[n] = unknown, unknown, false })
}

// acked notes that leases of some shards are no more, and nothing else changed.
func (s *Store) acked(queue string, k *known, calls []call) {
	s.changed(queue, k, calls, func(h *heads, n int) { h.late[n] = true })
}

func (s *Store) changed(queue string, k *known, calls []call, note func(h *heads, n int)) {
	if len(k.shards) == 1 && k.old == nil || len(calls) == 0 {
		return
	}
	q := s.queue(queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	shards := k.all()
	if q.layout == nil || q.layout.text != k.layout.text || len(q.heads.due) != len(shards) {
		return
	}
	for n, sh := range shards {
		for c := range calls {
			if calls[c].shard == sh {
				note(&q.heads, n)
				break
			}
		}
	}
}

// ring tells those who wait for a queue with several shards that what they know
// of them is old. It is done before a call returns that made something due
// earlier.
func (s *Store) ring(ctx context.Context, queue string) {
	// Where it fails the shards are still asked in turn.
	_ = s.client.Do(ctx, s.client.B().Hincrby().Key(s.queueKey(queue)).Field("bell").Increment(1).Build()).Error()
	s.tick(queue)
}

// woke is called after scripts have said that something is due earlier.
func (s *Store) woke(ctx context.Context, queue string, k *known) {
	if len(k.shards) > 1 || k.old != nil {
		s.ring(ctx, queue)
		return
	}
	s.tick(queue)
}
