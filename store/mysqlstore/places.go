package mysqlstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// SetClock gives a store that is opened with these options another clock than the
// server's: for tests of what is built on a store.
func (o *Options) SetClock(now func() time.Time) { o.now = now }

// Identity tells these tables from all others: a random name that they were given when
// they were made, and keep.
func (s *Store) Identity() string { return s.name }

// stateOf is the contract's name of a stored state.
func stateOf(state int) store.State {
	switch state {
	case waiting:
		return store.StateScheduled
	case leased:
		return store.StateLeased
	}
	return store.StateDead
}

// Places says where tasks stand. It locks nothing.
func (s *Store) Places(ctx context.Context, keys []store.Key) ([]store.Place, error) {
	if err := s.enter(ctx, len(keys)); err != nil {
		return nil, err
	}
	defer s.leave()
	places := make([]store.Place, len(keys))
	names := make(map[string]bool)
	for i, k := range keys {
		places[i].Key = k
		names[k.Queue] = true
	}
	found, err := s.find(ctx, names)
	if err != nil {
		return nil, err
	}
	at := make(map[store.Key][]int, len(keys))
	byQueue := make(map[string][]string)
	for i, k := range keys {
		if found[k.Queue] == nil {
			continue
		}
		if at[k] == nil {
			byQueue[k.Queue] = append(byQueue[k.Queue], k.ID)
		}
		at[k] = append(at[k], i)
	}
	for name, ids := range byQueue {
		slices.Sort(ids)
		for ids := range slices.Chunk(ids, keysPerStatement) {
			if err := s.with(ctx, func(ctx context.Context, l *link) error {
				l.add("place_find", found[name].id, ids)
				return l.send(ctx, func(v values) error {
					for _, i := range at[store.Key{Queue: name, ID: v.string(0)}] {
						p := &places[i]
						p.Seq, p.At, p.State = v.uint(1), milli(v.int(2)), stateOf(int(v.int(3)))
					}
					return nil
				})
			}); err != nil {
				return nil, err
			}
		}
	}
	return places, nil
}

// ListPlaces returns up to limit places of a queue's tasks that wait (ready ones
// included), or that are leased, in the order of their times: those after a place
// (the zero Place: from the beginning) and not later than until. It locks nothing,
// and does not fill in ids.
func (s *Store) ListPlaces(ctx context.Context, name string, state store.State, after store.Place, until time.Time, limit int) (places []store.Place, now time.Time, err error) {
	if err := s.enter(ctx, 0); err != nil {
		return nil, now, err
	}
	defer s.leave()
	q, err := s.findOne(ctx, name)
	if err != nil {
		return nil, now, err
	}
	if q == nil {
		m, err := s.time(ctx)
		return nil, m.now, err
	}
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		places = nil
		var m mark
		answers := l.mark(q.id, false, &m)
		l.clock()
		if err := l.send(ctx, append(answers, l.tell)...); err != nil {
			return err
		}
		now = l.now
		from, stored := m.start(), waiting
		if state == store.StateLeased {
			from, stored = pos{at: m.leaseStart()}, leased
		}
		if from.seq > 0 {
			from.seq-- // it is itself one that may be there
		} else {
			from.at, from.seq = max(from.at, math.MinInt64+1)-1, never
		}
		if !after.At.IsZero() {
			if p := (pos{after.At.UnixMilli(), after.Seq}); from.less(p) {
				from = p
			}
		}
		l.add("place_list", q.id, stored, until.UnixMilli(), from.at, from.at, from.seq, limit)
		return l.send(ctx, func(v values) error {
			places = append(places, store.Place{Key: store.Key{Queue: name}, Seq: v.uint(1), At: milli(v.int(0)), State: state})
			return nil
		})
	})
	return places, now, err
}

// PlaceOf is the place of a leased task, by its receipt: At is not filled in. It is
// false where the receipt is none.
func (s *Store) PlaceOf(r store.Receipt) (store.Place, bool) {
	parts, err := r.Parse()
	if err != nil {
		return store.Place{}, false
	}
	seq, _ := seqAndToken(&parts)
	return store.Place{Key: store.Key{Queue: parts.Queue, ID: parts.ID}, Seq: seq, State: store.StateLeased}, true
}

// ClaimPlaces is Claim, for one request, among the tasks at some places: those that
// are due, by the store's clock, and not leased, are handed out, oldest due first.
// Of the others it says where they stand, but for those that somebody else is
// changing at that moment. The payloads that are handed out have up to room bytes,
// and one task fits always where room is store.MaxClaimBytes. Where room is negative
// nothing is handed out: leases that have ended are ended, that is all.
func (s *Store) ClaimPlaces(ctx context.Context, request store.ClaimRequest, seqs []uint64, room int) (store.PlacesClaimed, error) {
	var none store.PlacesClaimed
	if err := s.enter(ctx, len(seqs)); err != nil {
		return none, err
	}
	defer s.leave()
	if err := request.Check(); err != nil {
		return none, err
	}
	q, err := s.findOne(ctx, request.Queue)
	if err != nil {
		return none, err
	}
	if q == nil {
		now, err := s.time(ctx)
		none.Now = now.later()
		for _, seq := range seqs {
			none.Left = append(none.Left, store.Place{Key: store.Key{Queue: request.Queue}, Seq: seq})
		}
		return none, err
	}
	seqs = slices.Clone(seqs)
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	var done store.PlacesClaimed
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		left := room
		c := &claim{s: s, q: q, requests: []store.ClaimRequest{request}, results: make([]store.ClaimResult, 1), mine: []int{0}, room: &left}
		var err error
		done, err = c.places(ctx, l, seqs)
		done.Now = c.later()
		return err
	})
	return done, err
}

// places is the transaction of ClaimPlaces.
func (c *claim) places(ctx context.Context, l *link, seqs []uint64) (done store.PlacesClaimed, err error) {
	s, q, r := c.s, c.q, &c.requests[0]
	views := make(map[uint32]*view)
	there := make(map[uint64]*edit, len(seqs))
	l.begin()
	l.add("queue_share", []uint32{q.id})
	answers := []func(values) error{s.views(views)}
	for part := range slices.Chunk(seqs, keysPerStatement) {
		l.add("place_claim", whereSeq(part))
		answers = append(answers, func(v values) error {
			if e := locked(scanRow(v)); e.queueID == q.id {
				there[e.seq] = e
			}
			return nil
		})
	}
	l.clock() // after the locks: the lease starts now
	if err := l.send(ctx, append(answers, l.tell)...); err != nil {
		return done, err
	}
	v := views[q.id]
	c.moment = l.moment
	letOut := v.letOut(c.now, c.ahead())
	done.HeldBack = v.Paused || v.Release != store.ReleaseImmediate
	var missing []uint64
	var all []*edit
	var ready []*row
	for _, seq := range seqs {
		e := there[seq]
		if e == nil {
			missing = append(missing, seq)
			continue
		}
		if e.expired(c.now) {
			e.expire(v.MaxLost)
		}
		all = append(all, e)
		if e.state == waiting && e.at <= letOut {
			ready = append(ready, &e.row)
		}
	}
	slices.SortFunc(ready, func(a, b *row) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	share := c.pick(ready, there)
	token := newToken()
	var big []uint64
	for _, e := range share {
		e.worker = store.CleanWorker(r.Worker)
		if e.big {
			big = append(big, e.seq)
		}
		if r.AtMostOnce {
			e.gone = true
			continue
		}
		e.state, e.token, e.at = leased, token, v.leaseEnd(c.now, e.due, r.Lease)
	}
	slices.Sort(big)
	answers = answers[:0]
	if len(big) > 0 && r.AtMostOnce {
		l.add("payloads", big)
		answers = append(answers, fillPayloads(share))
	}
	counts := countEdits(all, views)
	l.write(all)
	l.tally(counts)
	l.commit()
	if len(big) > 0 && !r.AtMostOnce {
		l.add("claim_payloads", big, token)
		answers = append(answers, fillPayloads(share))
	}
	for part := range slices.Chunk(missing, keysPerStatement) {
		// What is locked by somebody else is there.
		l.add("place_there", whereSeq(part))
		answers = append(answers, func(v values) error { there[v.uint(0)] = nil; return nil })
	}
	if err := l.send(ctx, answers...); err != nil {
		return done, err
	}
	if share != nil {
		c.hand([][]*edit{share})
		done.Tasks = c.results[0].Tasks
	}
	taken := make(map[uint64]bool, len(share))
	for _, e := range share {
		taken[e.seq] = true
	}
	for _, seq := range seqs {
		e, known := there[seq]
		switch {
		case taken[seq], known && e == nil:
		case e == nil:
			done.Left = append(done.Left, store.Place{Key: store.Key{Queue: q.name}, Seq: seq})
		default:
			done.Left = append(done.Left, store.Place{Key: store.Key{Queue: q.name, ID: e.id}, Seq: seq, At: milli(e.at), State: stateOf(e.state)})
		}
	}
	return done, nil
}

// pick is share, for edits that are there already.
func (c *claim) pick(ready []*row, there map[uint64]*edit) []*edit {
	var picked []*edit
	for _, r := range ready {
		if len(picked) == c.requests[0].Max || r.size > *c.room && *c.room < store.MaxClaimBytes {
			break
		}
		*c.room -= r.size
		picked = append(picked, there[r.seq])
	}
	return picked
}
