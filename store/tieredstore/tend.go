package tieredstore

import (
	"context"
	"math"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// tendEvery is how often a window is looked after, and tendGap how often at most
	// where something asks for it.
	tendEvery = 250 * time.Millisecond
	tendGap   = 20 * time.Millisecond
	// tendLease is for how long a process that looks after a window is waited for.
	tendLease = 2 * time.Second
	// tendFor is for how long a window is looked after that nobody claims from.
	tendFor = time.Minute

	loadSlice = 1000
	// mendSlice tasks that come up within mendAhead are compared with the window.
	mendSlice = 500
	mendAhead = time.Second
	// mendLate is how long a task may be on its way from the window to its lease.
	mendLate = 300 * time.Millisecond
)

// startTender sees to it that the queue's tender runs.
func (s *Store) startTender(q *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tended {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		q.tended = true
		s.background.Go(func() { s.tender(q) })
	}
}

// tender looks after a queue's window for as long as somebody claims or waits here.
func (s *Store) tender(q *queue) {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		s.tend(s.ctx, q)
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(tendGap):
		}
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		case <-q.kick:
		}
		q.mu.Lock()
		if q.waiters == 0 && time.Since(q.used) > tendFor {
			q.tended = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
	}
}

// tend does what is to be done for a window now. Errors are met by those who claim;
// here the next time comes soon.
func (s *Store) tend(ctx context.Context, q *queue) {
	before := q.known()
	var w store.Window
	var mine bool
	if s.hot.do(ctx, func(ctx context.Context, h Hot) (err error) {
		var count int64
		w, mine, count, err = h.Tend(ctx, q.name, s.node, tendLease)
		q.mu.Lock()
		q.count = count
		q.mu.Unlock()
		return err
	}) != nil {
		return
	}
	usable := s.heard(q, before, w)
	if !mine || !usable && w.Generation != 0 {
		return
	}
	// The truth's clock first: the edge is counted from it.
	ends, now, err := s.cold.ListPlaces(ctx, q.name, store.StateLeased, store.Place{}, s.clock.now(), mendSlice)
	if err != nil {
		return
	}
	s.clock.saw(now)
	edge := now.Add(s.opts.Window)
	switch {
	case w.Generation == 0 || w.Loaded.Before(now):
		// One that has fallen behind is not continued: what lies before its edge may
		// have changed while nobody used it.
		generation := max(now.UnixMilli(), w.Generation+1, before.Generation+1)
		w, err = s.begin(ctx, q, generation, edge.Add(s.step()), true)
		s.counts.filled.Add(1)
	case w.Edge.Before(edge):
		w, err = s.begin(ctx, q, w.Generation, edge.Add(s.step()), false)
	}
	if err != nil || w.Generation == 0 {
		return
	}
	if w.Loaded.Before(w.Edge) && !s.load(ctx, q, w) {
		return
	}
	s.mend(ctx, q, w.Generation, ends)
}

func (s *Store) begin(ctx context.Context, q *queue, generation int64, edge time.Time, fresh bool) (w store.Window, err error) {
	before := q.known()
	err = s.hot.do(ctx, func(ctx context.Context, h Hot) (err error) {
		if w, err = h.Begin(ctx, q.name, generation, edge, fresh); err == nil {
			s.heard(q, before, w)
		}
		return err
	})
	s.at("edge", q.name)
	return w, err
}

// load puts into a window what lies between what is loaded and its edge, and
// reports whether it came to the end.
func (s *Store) load(ctx context.Context, q *queue, w store.Window) bool {
	renewed := time.Now()
	for _, state := range [2]store.State{store.StateScheduled, store.StateLeased} {
		after := store.Place{}
		if w.Loaded.After(store.MinTime) {
			after.At, after.Seq = w.Loaded, math.MaxInt64
		}
		for {
			places, now, err := s.cold.ListPlaces(ctx, q.name, state, after, w.Edge, loadSlice)
			if err != nil {
				return false
			}
			s.clock.saw(now)
			s.at("slice", q.name)
			if len(places) > 0 {
				after = places[len(places)-1]
				n, ok := s.put(ctx, q, w.Generation, places, now, false)
				s.counts.loaded.Add(int64(n))
				if !ok {
					return false
				}
			}
			if len(places) < loadSlice {
				break
			}
			if time.Since(renewed) < tendLease/4 {
				continue
			}
			renewed = time.Now()
			mine := false
			if s.hot.do(ctx, func(ctx context.Context, h Hot) (err error) {
				_, mine, _, err = h.Tend(ctx, q.name, s.node, tendLease)
				return err
			}) != nil || !mine {
				return false // somebody else goes on
			}
		}
	}
	s.at("loaded", q.name)
	before, ok := q.known(), false
	_ = s.hot.do(ctx, func(ctx context.Context, h Hot) error {
		end, err := h.End(ctx, q.name, w.Generation, w.Edge)
		ok = err == nil && s.heard(q, before, end) && end.Generation == w.Generation
		return err
	})
	return ok
}

// put is Hot.Load; false where the window is another one by now.
func (s *Store) put(ctx context.Context, q *queue, generation int64, places []store.Place, now time.Time, mend bool) (n int, ok bool) {
	before := q.known()
	_ = s.hot.do(ctx, func(ctx context.Context, h Hot) (err error) {
		var w store.Window
		if w, n, err = h.Load(ctx, q.name, generation, places, now, mend); err == nil {
			ok = s.heard(q, before, w) && w.Generation == generation
		}
		return err
	})
	return n, ok
}

// mend compares what comes up with the window, and leases that have ended.
func (s *Store) mend(ctx context.Context, q *queue, generation int64, ends []store.Place) {
	places, now, err := s.cold.ListPlaces(ctx, q.name, store.StateScheduled, store.Place{}, s.clock.now().Add(mendAhead), mendSlice)
	if err != nil {
		return
	}
	s.clock.saw(now)
	if places = append(places, ends...); len(places) == 0 {
		return
	}
	n, _ := s.put(ctx, q, generation, places, now.Add(-mendLate), true)
	s.counts.mended.Add(int64(n))
}
