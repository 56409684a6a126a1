package mysqlstore

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// expireSlice is how many leases one transaction ends.
	expireSlice = 1000
	// resetEvery is how often, at most, a queue's early marks are set back.
	resetEvery = 200 * time.Millisecond
	// moveEvery is how often, at most, a claim that gets nothing writes where the
	// next one may begin.
	moveEvery = 5 * time.Second
	// auditEvery is how often a process looks at a queue from its very beginning, so
	// that what somebody's hand, or a restored backup, has put before the place where
	// claims begin is found too.
	auditEvery = 5 * time.Minute
	// withoutTurn is for how long claims go without waiting for their turn after its
	// holder has kept it for longer than a lock is waited for.
	withoutTurn = 30 * time.Second
	// claimAhead is how far ahead those claim who keep tasks until they are due: most
	// claims, each with a synced commit, take less.
	claimAhead = 30 * time.Millisecond
)

// Claim implements store.Store. Requests for one queue are served by one
// transaction, one for each queue.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := s.enter(ctx, len(requests)); err != nil {
		return nil, err
	}
	defer s.leave()
	results := make([]store.ClaimResult, len(requests))
	byQueue := make(map[string][]int)
	names := make(map[string]bool)
	var order []string
	for i := range requests {
		r := &requests[i]
		if results[i].Err = r.Check(); results[i].Err != nil {
			continue
		}
		if !names[r.Queue] {
			names[r.Queue] = true
			order = append(order, r.Queue)
		}
		byQueue[r.Queue] = append(byQueue[r.Queue], i)
	}
	found, err := s.find(ctx, names)
	if err != nil {
		return nil, err
	}
	room := store.MaxClaimBytes
	var now moment
	for _, name := range order {
		q := found[name]
		if q == nil {
			continue
		}
		c := &claim{s: s, q: q, requests: requests, results: results, mine: byQueue[name], room: &room}
		if err := c.run(ctx); err != nil {
			return nil, err
		}
		now = c.moment
	}
	if len(requests) > 0 && now.now.IsZero() { // of queues that do not exist, or wrong ones
		if now, err = s.time(ctx); err != nil {
			return nil, err
		}
	}
	for i := range results {
		// What it shows by now: who keeps tasks until they are due goes by it.
		results[i].Now = now.later()
	}
	return results, nil
}

// time asks for the store's clock.
func (s *Store) time(ctx context.Context) (now moment, err error) {
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		l.clock()
		err := l.send(ctx, l.tell)
		now = l.moment
		return err
	})
	return now, err
}

// claim serves the requests for one queue.
type claim struct {
	s        *Store
	q        *queue
	requests []store.ClaimRequest
	results  []store.ClaimResult
	mine     []int // the requests for this queue
	room     *int  // bytes of payload that still fit into the answer

	moment
}

// ahead is how far ahead all the requests claim.
func (c *claim) ahead() time.Duration {
	ahead := store.MaxAhead
	for _, i := range c.mine {
		r := &c.requests[i]
		if r.AtMostOnce {
			return 0
		}
		ahead = min(ahead, r.Ahead)
	}
	return ahead
}

func (c *claim) run(ctx context.Context) error {
	// Within a process claims wait for each other here, which costs nothing, and not
	// in the server.
	select {
	case c.q.claiming <- struct{}{}:
		defer func() { <-c.q.claiming }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Where nothing is likely to be there, looking is cheaper than a transaction.
	if c.q.next.Load() > c.s.guess().Add(c.ahead()).UnixMilli() {
		views, heads, err := c.s.heads(ctx, []*queue{c.q})
		if err != nil {
			return err
		}
		h, v := &heads[0], views[c.q.id]
		c.moment = h.moment
		audit := time.Since(c.q.audited) > auditEvery
		behind := audit || h.pos != h.waiting && time.Since(c.q.moved) > moveEvery
		if !behind && h.leased > c.now.UnixMilli() && (v.Paused || h.waiting.at > v.letOut(c.now, c.ahead())) {
			c.answer(v, h.waiting, h.leased, nil)
			return nil
		}
	}
	turn := time.Now().After(c.q.noTurn)
	var shares [][]*edit
	before := *c.room
	err := c.s.with(ctx, func(ctx context.Context, l *link) error {
		*c.room = before
		var err error
		shares, err = c.attempt(ctx, l, turn)
		if turn && serverError(err, errLockTimeout) {
			turn, c.q.noTurn = false, time.Now().Add(withoutTurn)
		}
		return err
	})
	if err != nil {
		return err
	}
	c.hand(shares)
	return nil
}

// letOut is the last instant whose tasks may be handed out, in ms; -1 for none. Where
// they go out as they come due, those that do so within ahead may go out, too.
func (v *view) letOut(now time.Time, ahead time.Duration) int64 {
	if v.Paused {
		return -1
	}
	if v.Release == store.ReleaseImmediate {
		now = now.Add(ahead)
	}
	last := v.release.Last(now)
	if last.IsZero() {
		return -1
	}
	return last.UnixMilli()
}

// answer says to all requests when to come again.
func (c *claim) answer(v *view, first pos, lease int64, shares [][]*edit) {
	c.q.next.Store(min(first.at, lease))
	var next time.Time
	if !v.Paused {
		if first.at != never {
			if next = v.release.Next(milli(first.at)); first.at <= v.letOut(c.now, 0) {
				next = c.now
			}
		}
		if lease != never && (next.IsZero() || milli(lease).Before(next)) {
			next = milli(lease)
		}
		if !next.IsZero() && next.Before(c.now) {
			next = c.now
		}
	}
	for k, i := range slices.Backward(c.mine) {
		c.results[i].Now, c.results[i].Next = c.now, next
		if k < len(shares) && len(shares[k]) > 0 {
			next = c.now // for those before it more was ready
		}
	}
}

// attempt is the transaction of a claim.
func (c *claim) attempt(ctx context.Context, l *link, turn bool) (shares [][]*edit, err error) {
	s, q := c.s, c.q
	var m mark
	views := make(map[uint32]*view)
	l.begin()
	answers := l.mark(q.id, turn, &m)
	l.add("queue_share", []uint32{q.id})
	l.clock()
	if err := l.send(ctx, append(answers, s.views(views), l.tell)...); err != nil {
		return nil, err
	}
	v, now := views[q.id], l.now
	c.moment = l.moment
	counts := map[uint32]*count{q.id: newCount()}
	if time.Since(q.audited) > auditEvery {
		q.audited = time.Now()
		m.pos, m.lease = pos{at: math.MinInt64}, math.MinInt64
	}

	want := 0
	for _, i := range c.mine {
		want = min(want+c.requests[i].Max, store.MaxBatch)
	}
	letOut := v.letOut(now, c.ahead())
	var fold *folding
	if turn && m.stale() && time.Since(q.reset) > resetEvery {
		q.reset = time.Now()
		fold = newFolding()
		l.add("tally_lock", q.id, foldRows)
		if err := l.send(ctx, fold.scan); err != nil {
			return nil, err
		}
		m.early, m.earlyEnds = min(m.early, fold.early), min(m.earlyEnds, fold.earlyLease)
	}
	var rows, over []*row
	var first []pos
	lease := int64(never)
	from := m.start()
	look := func() error {
		var answers []func(values) error
		rows, over, first, lease = nil, nil, nil, never
		l.add("claim_expired", q.id, m.leaseStart(), now.UnixMilli(), expireSlice)
		l.add("waiting_from", q.id, from.at, from.at, from.seq, want+1)
		l.add("leased_from", q.id, m.leaseStart())
		answers = append(answers,
			func(v values) error { over = append(over, scanRow(v)); return nil },
			func(v values) error { first = append(first, pos{v.int(0), v.uint(1)}); return nil },
			func(v values) error { lease = v.int(0); return nil })
		if letOut >= 0 {
			l.add("claim_ready", q.id, letOut, from.at, from.at, from.seq, want)
			answers = append(answers, func(v values) error { rows = append(rows, scanRow(v)); return nil })
		}
		// The lease starts when the task is locked: before that another may have ended
		// a lease of it, by a clock that is later than the first look at it.
		l.clock()
		return l.send(ctx, append(answers, l.tell)...)
	}
	if err := look(); err != nil {
		return nil, err
	}
	expired := 0
	for len(over) > 0 {
		// Leases that are over end first, as what they held may be what comes first.
		edits := make([]*edit, len(over))
		for i, r := range over {
			e := locked(r)
			e.expire(v.MaxLost)
			counts[q.id].take(e, v.counted)
			if e.state == waiting {
				from = minPos(from, pos{at: e.at})
			}
			edits[i] = e
		}
		expired += len(over)
		l.write(edits)
		if err := look(); err != nil {
			return nil, err
		}
	}

	c.moment = l.moment
	shares, got := c.share(rows)
	claimed := make(map[uint64]bool, len(got))
	for _, e := range got {
		claimed[e.seq] = true
	}
	head := pos{at: never}
	for _, p := range first {
		if !claimed[p.seq] {
			head = p
			break
		}
	}
	if len(got) == 0 && expired == 0 && fold == nil && (!turn || m.pos == head || time.Since(q.moved) < moveEvery) {
		c.answer(v, head, lease, nil)
		return nil, l.undo(ctx)
	}

	tokens := make(map[uint64][]uint64)
	var once []uint64 // those that are handed out at most once, read before they go
	for k, i := range c.mine {
		r := &c.requests[i]
		token := newToken()
		for _, e := range shares[k] {
			e.worker = store.CleanWorker(r.Worker)
			if r.AtMostOnce {
				e.gone = true
				if e.big {
					once = append(once, e.seq)
				}
			} else {
				e.state, e.token = leased, token
				e.at = v.leaseEnd(c.now, e.due, r.Lease)
				if e.big {
					tokens[token] = append(tokens[token], e.seq)
				}
				lease = min(lease, e.at)
			}
			counts[q.id].take(e, v.counted)
		}
	}
	var all []func(values) error
	if len(once) > 0 {
		l.add("payloads", once)
		all = append(all, fillPayloads(got))
	}
	if turn {
		// Whatever was added meanwhile, or was ended here, told of itself or is in
		// head; the turn itself tells of the new leases.
		counts[q.id].earlyLease = never
		counts[q.id].early = never
		q.moved = time.Now()
		l.add("turn_set", head.at, head.seq, lease, q.id)
	}
	if fold != nil {
		fold.write(l, q.id, counts[q.id], v.counted)
	}
	l.write(got)
	l.tally(counts)
	l.commit()
	for token, seqs := range tokens {
		slices.Sort(seqs)
		l.add("claim_payloads", seqs, token)
		all = append(all, fillPayloads(got))
	}
	if err := l.send(ctx, all...); err != nil {
		return nil, err
	}
	c.answer(v, head, lease, shares)
	return shares, nil
}

func newToken() uint64 {
	for {
		if t := rand.Uint64N(1 << tokenBits); t > 1<<32 { // 0 is for none; small ones are easily guessed
			return t
		}
	}
}

// leaseEnd is when a lease ends that begins now, or when its task is due if that is
// later.
func (v *view) leaseEnd(now time.Time, due int64, lease time.Duration) int64 {
	if due := milli(due); due.After(now) {
		now = due
	}
	if lease == 0 {
		lease = v.Lease
	}
	return store.CeilMilli(now.Add(lease)).UnixMilli()
}

// share gives rows to the requests, in order, as far as there is room for their
// payloads. One task always fits, or it would never go out.
func (c *claim) share(rows []*row) (shares [][]*edit, all []*edit) {
	shares = make([][]*edit, len(c.mine))
	n := 0
	for k, i := range c.mine {
		for len(shares[k]) < c.requests[i].Max && n < len(rows) {
			size := rows[n].size
			if size > *c.room && *c.room < store.MaxClaimBytes {
				return shares, all
			}
			*c.room -= size
			e := locked(rows[n])
			shares[k], all = append(shares[k], e), append(all, e)
			n++
		}
	}
	return shares, all
}

// fillPayloads takes in payloads that are not in the rows themselves.
func fillPayloads(edits []*edit) func(values) error {
	by := make(map[uint64]*edit, len(edits))
	for _, e := range edits {
		by[e.seq] = e
	}
	return func(v values) error {
		if e := by[v.uint(0)]; e != nil {
			e.unpack(v.bytes(1))
		}
		return nil
	}
}

// hand makes the results.
func (c *claim) hand(shares [][]*edit) {
	if shares == nil { // nothing was there
		return
	}
	for k, i := range c.mine {
		out := &c.results[i].Tasks
		for _, e := range shares[k] {
			if !e.loaded {
				continue // cancelled or replaced in that moment
			}
			if e.headers != nil && !json.Valid(e.headers) {
				c.s.opts.Logger.Warn("duetime: the headers of a task in the table duetime_task are damaged", "queue", c.q.name, "id", e.id)
			}
			r := e.row
			r.state = leased
			lease := store.Lease{Task: r.task(c.q.name, c.now), ClaimedAt: c.now}
			if e.gone {
				lease.LeaseUntil = time.Time{}
			} else {
				lease.Receipt = receipt(c.q.name, e)
			}
			*out = append(*out, lease)
		}
	}
}
