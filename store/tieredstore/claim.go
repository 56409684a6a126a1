package tieredstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// takeAtOnce is how many tasks are taken from a window and leased at a time.
	takeAtOnce = 1000
	// onceAgain is after how long what was to be handed out at most once is tried
	// again, if the claimer dies before it had asked the truth.
	onceAgain = 2 * time.Second
)

// Claim implements store.Store. The request for a queue whose window can not be used
// goes to the cold store.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := store.CheckBatch(len(requests)); err != nil {
		return nil, err
	}
	results := make([]store.ClaimResult, len(requests))
	straight := make(map[string]bool) // queues
	var rest []int
	room := store.MaxClaimBytes
	any := false
	for i := range requests {
		r := &requests[i]
		if r.Check() != nil || straight[r.Queue] {
			rest = append(rest, i) // the cold store says what is wrong, too
			continue
		}
		served, err := s.claim(ctx, r, &results[i], &room)
		if err != nil && !any {
			return nil, err
		}
		if err != nil {
			// What was handed out has to be returned. Whoever comes again meets the error.
			results[i].Next, results[i].Now = s.clock.now(), s.clock.now()
			continue
		}
		if !served {
			straight[r.Queue] = true
			rest = append(rest, i)
			continue
		}
		any = any || len(results[i].Tasks) > 0
	}
	if len(rest) == 0 {
		return results, nil
	}
	asked := make([]store.ClaimRequest, len(rest))
	for k, i := range rest {
		asked[k] = requests[i]
	}
	got, err := s.cold.Claim(ctx, asked)
	if err != nil && !any {
		return nil, err
	}
	byQueue := make(map[string][]store.Place)
	for k, i := range rest {
		if err != nil {
			results[i].Next, results[i].Now = s.clock.now(), s.clock.now()
			continue
		}
		results[i] = got[k]
		s.clock.saw(got[k].Now)
		for _, l := range got[k].Tasks {
			if p, ok := s.cold.PlaceOf(l.Receipt); ok {
				p.At = l.LeaseUntil
				byQueue[l.Queue] = append(byQueue[l.Queue], p)
			}
		}
		s.counts.straight.Add(int64(len(got[k].Tasks)))
	}
	for name, places := range byQueue {
		if q := s.queue(name); s.hot.there() && q.known().Generation != 0 {
			s.apply(ctx, q, places)
		}
	}
	return results, nil
}

// claim serves a request by the window, if it can be used; otherwise, and where the
// queue's settings ask for more than due times, it reports false and nothing was
// handed out.
func (s *Store) claim(ctx context.Context, r *store.ClaimRequest, res *store.ClaimResult, room *int) (served bool, err error) {
	q := s.queue(r.Queue)
	if s.claiming(q) || !s.hot.there() {
		return false, nil
	}
	settings, err := s.learn(ctx, q)
	if err != nil {
		return false, err
	}
	if settings.Paused || settings.Release != store.ReleaseImmediate {
		return false, nil
	}
	s.at("claim", q.name)
	lease := r.Lease
	if lease == 0 {
		lease = settings.Lease
	}
	if r.AtMostOnce {
		lease = onceAgain
	}
	// What was ready when the claim began is looked for until it is found. What comes
	// up meanwhile is the next claim's: with tasks due all the time there would be no
	// end to it, and the first would wait for the last.
	began := s.clock.now()
	// What others scheduled between two rounds may be older than what the first
	// brought.
	rounds := 0
	defer func() {
		if rounds > 1 {
			s.sort(res.Tasks)
		}
	}()
	for {
		want := *r
		want.Max = min(r.Max-len(res.Tasks), takeAtOnce)
		rounds++
		more, ok, err := s.round(ctx, q, want, lease, res, room)
		if err != nil && len(res.Tasks) > 0 {
			res.Next, res.Now = s.clock.now(), s.clock.now()
			return true, nil
		}
		if err != nil || !ok && len(res.Tasks) == 0 {
			return false, err
		}
		if !ok { // others go to the truth next
			res.Next = res.Now
			return true, nil
		}
		if !more || len(res.Tasks) >= r.Max || *room <= 0 || len(res.Tasks) > 0 && res.Next.After(began) {
			if !res.Next.IsZero() && res.Next.Before(res.Now) {
				res.Next = res.Now
			}
			return true, nil
		}
	}
}

// ahead is how far ahead a request claims.
func ahead(r *store.ClaimRequest) time.Duration {
	if r.AtMostOnce {
		return 0
	}
	return r.Ahead
}

// sort puts tasks into the order in which they are handed out.
func (s *Store) sort(tasks []store.Lease) {
	slices.SortStableFunc(tasks, func(a, b store.Lease) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		p, _ := s.cold.PlaceOf(a.Receipt)
		o, _ := s.cold.PlaceOf(b.Receipt)
		return cmp.Compare(p.Seq, o.Seq)
	})
}

// round takes once from the window, and leases what it got. more: there may be more
// that is due; ok: the window could be used.
func (s *Store) round(ctx context.Context, q *queue, r store.ClaimRequest, lease time.Duration, res *store.ClaimResult, room *int) (more, ok bool, err error) {
	before := q.known()
	now := s.clock.now()
	var taken store.WindowTaken
	if err := s.hot.do(ctx, func(ctx context.Context, h Hot) (err error) {
		taken, err = h.Take(ctx, q.name, now, now.Add(ahead(&r)), r.Max, store.CeilMilli(now.Add(lease)))
		return err
	}); err != nil {
		return false, false, ctx.Err()
	}
	if !s.heard(q, before, taken.Window) || !taken.Whole {
		q.look()
		return false, false, nil
	}
	if len(taken.Seqs) == 0 {
		res.Now, res.Next = s.clock.now(), taken.Next
		if taken.Next.IsZero() || taken.Next.After(taken.Edge) {
			// What comes after the window is known to the truth alone.
			if res.Next, res.Now, err = s.first(ctx, q); err != nil {
				return false, false, err
			}
		}
		return false, true, nil
	}
	s.at("taken", q.name)
	share := *room
	if taken.Ended {
		share = -1 // they are ended only, and then have their place in the order again
	}
	got, err := s.cold.ClaimPlaces(ctx, r, taken.Seqs, share)
	if err != nil {
		return false, false, err
	}
	s.at("leased", q.name)
	s.clock.saw(got.Now)
	for i := range got.Tasks {
		*room -= len(got.Tasks[i].Payload)
	}
	res.Tasks = append(res.Tasks, got.Tasks...)
	s.putRight(ctx, q, &r, &taken, &got)
	res.Now, res.Next = got.Now, taken.Next
	if got.HeldBack {
		q.mu.Lock()
		q.readAt = time.Time{}
		q.mu.Unlock()
		return false, false, nil
	}
	if taken.Ended {
		return true, true, nil
	}
	for i := range got.Left {
		if p := &got.Left[i]; p.State == store.StateScheduled && !p.At.After(got.Now) {
			res.Next = got.Now // there was no room for it
			return false, true, nil
		}
	}
	if res.Next.IsZero() || res.Next.After(taken.Edge) {
		if first, _, err := s.first(ctx, q); err == nil {
			res.Next = first // else what was leased is handed out all the same
		}
		return false, true, nil
	}
	return len(taken.Seqs) == r.Max || !res.Next.After(res.Now), true, nil
}

// putRight makes the window say where tasks stand that were taken and not leased.
func (s *Store) putRight(ctx context.Context, q *queue, r *store.ClaimRequest, taken *store.WindowTaken, got *store.PlacesClaimed) {
	places := got.Left
	for i := range got.Left {
		if p := &got.Left[i]; p.State == store.StateScheduled && p.At.After(got.Now.Add(ahead(r))) {
			s.clock.correct(got.Now) // it was taken before it is due
		}
	}
	s.counts.stale.Add(int64(len(got.Left)))
	if r.AtMostOnce && len(got.Tasks) > 0 {
		left := make(map[uint64]bool, len(got.Left))
		for i := range got.Left {
			left[got.Left[i].Seq] = true
		}
		for _, seq := range taken.Seqs {
			if !left[seq] {
				places = append(places, store.Place{Key: store.Key{Queue: q.name}, Seq: seq})
			}
		}
	}
	if len(places) == 0 {
		return
	}
	s.apply(ctx, q, places)
	// What comes next is something else now.
	_ = s.hot.do(ctx, func(ctx context.Context, h Hot) error {
		look, err := h.Take(ctx, q.name, got.Now, got.Now, 0, got.Now)
		if err == nil && look.Whole {
			taken.Next = look.Next
		}
		return err
	})
}

// first is when the first task of a queue becomes claimable, by the truth.
func (s *Store) first(ctx context.Context, q *queue) (next, now time.Time, err error) {
	for _, state := range [2]store.State{store.StateScheduled, store.StateLeased} {
		var places []store.Place
		if places, now, err = s.cold.ListPlaces(ctx, q.name, state, store.Place{}, store.MaxTime, 1); err != nil {
			return next, now, err
		}
		if len(places) > 0 && (next.IsZero() || places[0].At.Before(next)) {
			next = places[0].At
		}
	}
	s.clock.saw(now)
	if !next.IsZero() && !next.After(now) {
		// It is claimable, and the window does not have it: the tender is to see to it.
		q.look()
	}
	return next, now, nil
}
