package tieredstore

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// slack is by how much the cold store's clock may go back without a window
	// lacking anything for it that mending would have to find.
	slack = time.Minute
	// truthTimeout is for how long the truth is asked where a task stands, after it
	// was changed.
	truthTimeout = 2 * time.Second
)

// standing is a task that may belong into a window now, and when it is due.
type standing struct {
	key store.Key
	due time.Time
}

// Schedule implements store.Store. It is as durable as the cold store's, and does
// not need the hot one.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	// What is replaced leaves its window; another task comes in.
	var replacing []store.Key
	for i := range tasks {
		if tasks[i].Conflict == store.ConflictReplace {
			replacing = append(replacing, store.Key{Queue: tasks[i].Queue, ID: tasks[i].ID})
		}
	}
	before := s.standing(ctx, replacing)
	results, err := s.cold.Schedule(ctx, tasks)
	if err != nil {
		return results, err
	}
	list := make([]standing, 0, len(tasks))
	gone := make(map[string][]store.Place)
	k := 0
	for i, r := range results {
		if r.Outcome == store.Created || r.Outcome == store.Replaced {
			list = append(list, standing{store.Key{Queue: tasks[i].Queue, ID: tasks[i].ID}, r.Due})
		}
		if tasks[i].Conflict == store.ConflictReplace {
			if r.Outcome == store.Replaced && before != nil {
				s.leaves(gone, before[k])
			}
			k++
		}
	}
	for name, places := range gone {
		s.apply(ctx, s.queue(name), places)
	}
	s.bring(ctx, list)
	return results, nil
}

// leaves notes that a task is to leave its window, if it may be in one.
func (s *Store) leaves(gone map[string][]store.Place, p store.Place) {
	if p.State == store.StateScheduled || p.State == store.StateLeased {
		if s.near(p.At) {
			p.State = 0
			gone[p.Queue] = append(gone[p.Queue], p)
		}
	}
}

// Import implements store.Importer.
func (s *Store) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	results, err := s.cold.Import(ctx, tasks)
	if err != nil {
		return results, err
	}
	list := make([]standing, 0, len(tasks))
	for i, r := range results {
		if r.Outcome == store.Created && tasks[i].State != store.StateDead {
			list = append(list, standing{store.Key{Queue: tasks[i].Queue, ID: tasks[i].ID}, r.Due})
		}
	}
	s.bring(ctx, list)
	return results, nil
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	keys := make([]store.Key, len(tasks))
	for i, t := range tasks {
		keys[i] = store.Key{Queue: t.Queue, ID: t.ID}
	}
	before := s.standing(ctx, keys)
	results, err := s.cold.Reschedule(ctx, tasks)
	if err != nil {
		return results, err
	}
	var list []standing
	moved := make(map[string][]store.Place)
	for i, r := range results {
		if r.Outcome != store.Rescheduled {
			continue
		}
		list = append(list, standing{keys[i], r.Due})
		// It may be in the window, and not belong there any more.
		if before != nil && r.Due.After(s.queue(keys[i].Queue).known().Edge) {
			s.leaves(moved, before[i])
		}
	}
	for name, places := range moved {
		s.apply(ctx, s.queue(name), places)
	}
	s.bring(ctx, list)
	return results, nil
}

// Cancel implements store.Store. A task that was cancelled in the truth can not be
// handed out, whether it is still in a window or not; it is taken out of it so that
// claims need not look at it.
func (s *Store) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	keys := make([]store.Key, len(tasks))
	for i, t := range tasks {
		keys[i] = store.Key{Queue: t.Queue, ID: t.ID}
	}
	before := s.standing(ctx, keys)
	results, err := s.cold.Cancel(ctx, tasks)
	if err != nil {
		return results, err
	}
	gone := make(map[string][]store.Place)
	for i, r := range results {
		if r.Outcome == store.Cancelled && before != nil {
			s.leaves(gone, before[i])
		}
	}
	for name, places := range gone {
		s.at("cancelled", name)
		s.apply(ctx, s.queue(name), places)
	}
	return results, nil
}

// standing says where tasks stand before they are changed; nil where nobody needs
// to know.
func (s *Store) standing(ctx context.Context, keys []store.Key) []store.Place {
	if !s.hot.there() || len(keys) == 0 {
		return nil
	}
	for _, k := range keys {
		if store.CheckKey(k.Queue, k.ID) != nil {
			return nil // rare, and what stays in a window does no harm
		}
	}
	places, err := s.cold.Places(ctx, keys)
	if err != nil {
		return nil
	}
	return places
}

// step is how much further than needed the edge of a window is set, so that it need
// not be moved all the time.
func (s *Store) step() time.Duration { return s.opts.Window / 8 }

// near reports whether something may lie before the edge of any window, by now.
func (s *Store) near(at time.Time) bool {
	return !at.After(s.clock.now().Add(s.opts.Window + s.step() + slack))
}

// knowsTime reports whether the estimate of the cold store's clock is a recent one. A
// process that only schedules hears of that clock nothing else.
func (s *Store) knowsTime(ctx context.Context) bool {
	if !s.clock.old() {
		return true
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	if !s.clock.old() {
		return true // somebody else has asked
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), truthTimeout)
	defer cancel()
	return s.askTime(limited) == nil
}

// bring makes windows say where tasks stand that were changed. It is called when
// the change is committed, and reads the edge then: who moves it does that first, and
// reads the tasks afterwards.
func (s *Store) bring(ctx context.Context, list []standing) {
	byQueue := make(map[string][]standing)
	knows := len(list) == 0 || s.knowsTime(ctx)
	for _, t := range list {
		if !knows || s.near(t.due) {
			byQueue[t.key.Queue] = append(byQueue[t.key.Queue], t)
		}
	}
	// The change is made, and what follows belongs to it, whether the caller still
	// waits or not.
	ctx = context.WithoutCancel(ctx)
	for name, list := range byQueue {
		s.at("committed", name)
		s.bringQueue(ctx, s.queue(name), list)
	}
}

func (s *Store) bringQueue(ctx context.Context, q *queue, list []standing) {
	w := q.known()
	for _, t := range list {
		if w.Generation == 0 || t.due.After(w.Edge) {
			var ok bool
			if w, ok = s.ask(ctx, q); !ok {
				return
			}
			break
		}
	}
	keys := make([]store.Key, 0, len(list))
	for _, t := range list {
		if !t.due.After(w.Edge) {
			keys = append(keys, t.key)
		}
	}
	if len(keys) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, truthTimeout)
	defer cancel()
	places, err := s.cold.Places(limited, keys)
	if err != nil {
		s.hot.spoil(q.name)
		return
	}
	s.apply(ctx, q, places)
}

// ask asks what a window is; false where there is none.
func (s *Store) ask(ctx context.Context, q *queue) (w store.Window, ok bool) {
	before := q.known()
	s.hot.note(ctx, q.name, func(ctx context.Context, h Hot) (err error) {
		if w, _, _, err = h.Tend(ctx, q.name, "", 0); err == nil {
			ok = s.heard(q, before, w)
		}
		return err
	})
	return w, ok
}

// apply makes a window say where tasks stand.
func (s *Store) apply(ctx context.Context, q *queue, places []store.Place) {
	if len(places) == 0 {
		return
	}
	before := q.known()
	s.hot.note(context.WithoutCancel(ctx), q.name, func(ctx context.Context, h Hot) error {
		w, err := h.Apply(ctx, q.name, places, s.clock.now())
		if err == nil {
			s.heard(q, before, w)
		}
		return err
	})
}
