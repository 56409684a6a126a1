package mysqlstore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, name string) (store.Settings, error) {
	none := store.Settings{}
	if err := store.CheckQueue(name); err != nil {
		return none, err
	}
	if err := s.enter(ctx, 0); err != nil {
		return none, err
	}
	defer s.leave()
	q, err := s.findOne(ctx, name)
	if err != nil {
		return none, err
	}
	if q == nil {
		return store.DefaultSettings(), nil
	}
	views := make(map[uint32]*view)
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		l.add("queue_read", []uint32{q.id})
		return l.send(ctx, s.views(views))
	})
	if err != nil {
		return none, err
	}
	if views[q.id] == nil {
		return store.DefaultSettings(), nil
	}
	return views[q.id].Settings, nil
}

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, name string, settings store.Settings) (store.Settings, error) {
	none := store.Settings{}
	if err := store.CheckQueue(name); err != nil {
		return none, err
	}
	if err := settings.Check(); err != nil {
		return none, err
	}
	if _, err := release.Parse(settings.Release); err != nil {
		return none, err
	}
	if err := s.enter(ctx, 0); err != nil {
		return none, err
	}
	defer s.leave()
	q, err := s.findOne(ctx, name)
	if err != nil {
		return none, err
	}
	if q == nil {
		if settings.Version != 0 {
			return none, store.ErrVersion
		}
		found, err := s.ensure(ctx, map[string]bool{name: true})
		if err != nil {
			return none, err
		}
		q = found[name]
	}
	document, err := json.Marshal(settings)
	if err != nil {
		return none, store.NewInputError("settings", name, "can not be stored: %v", err)
	}
	next := settings
	next.Version++
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		views := make(map[uint32]*view)
		l.begin()
		l.add("queue_lock", q.id)
		if err := l.send(ctx, s.views(views)); err != nil {
			return err
		}
		if v := views[q.id]; v == nil || v.Version != settings.Version {
			if err := l.undo(ctx); err != nil {
				return err
			}
			return store.ErrVersion
		}
		l.add("queue_settings", next.Version, document, q.id)
		l.commit()
		return l.send(ctx)
	})
	if err != nil {
		return none, err
	}
	q.next.Store(never)
	q.wakers.tick(name)
	return next, nil
}

// Redrive implements store.Store.
func (s *Store) Redrive(ctx context.Context, r store.RedriveRequest) (int, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx, 0); err != nil {
		return 0, err
	}
	defer s.leave()
	q, err := s.findOne(ctx, r.Queue)
	if err != nil || q == nil {
		return 0, err
	}
	if !r.All {
		keys := make([]store.Key, len(r.IDs))
		for i, id := range r.IDs {
			keys[i] = store.Key{Queue: r.Queue, ID: id}
		}
		results, err := s.edit(ctx, keys, nil, func(i int, e *edit, _ *view, now time.Time) store.Result {
			if e == nil || e.state != dead {
				return store.Result{Outcome: store.NotFound}
			}
			e.redrive(now.UnixMilli())
			return store.Result{Outcome: store.Rescheduled}
		})
		count := 0
		for _, r := range results {
			if r.Outcome == store.Rescheduled {
				count++
			}
		}
		return count, err
	}
	now, err := s.sweep(ctx, q)
	if err != nil {
		return 0, err
	}
	// All of them are due at one moment, so that they go out in the order in which
	// they were scheduled.
	return s.slices(ctx, q, dead, 0, never, func(e *edit) { e.redrive(now.UnixMilli()) })
}

func (e *edit) redrive(now int64) {
	e.state, e.failures, e.lost = waiting, 0, 0
	e.wait(now)
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, name string, state store.State) (int, error) {
	if err := (&store.ListRequest{Queue: name, State: state}).Check(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx, 0); err != nil {
		return 0, err
	}
	defer s.leave()
	q, err := s.findOne(ctx, name)
	if err != nil || q == nil {
		return 0, err
	}
	now, err := s.sweep(ctx, q)
	if err != nil {
		return 0, err
	}
	stored, from, to := waiting, int64(0), int64(never)
	switch state {
	case store.StateReady:
		to = now.UnixMilli()
	case store.StateScheduled:
		from = now.UnixMilli() + 1
	case store.StateLeased:
		stored = leased
	case store.StateDead:
		stored = dead
	}
	return s.slices(ctx, q, stored, from, to, func(e *edit) { e.gone = true })
}

// slices changes all tasks of a state, slice by slice. What others have locked at
// that moment is left to them. A task that was changed must not be found again.
func (s *Store) slices(ctx context.Context, q *queue, state int, from, to int64, change func(*edit)) (int, error) {
	total := 0
	for {
		n := 0
		err := s.with(ctx, func(ctx context.Context, l *link) error {
			n = 0
			views := make(map[uint32]*view)
			var edits []*edit
			l.begin()
			l.add("queue_share", []uint32{q.id})
			l.add("state_lock", q.id, state, from, to, sliceRows)
			if err := l.send(ctx, s.views(views), func(v values) error {
				e := locked(scanRow(v))
				change(e)
				edits = append(edits, e)
				return nil
			}); err != nil {
				return err
			}
			if len(edits) == 0 {
				return l.undo(ctx)
			}
			// The next slice begins where this one ends, not before what it removed.
			counts := countEdits(edits, views)
			l.write(edits)
			l.tally(counts)
			l.commit()
			if err := l.send(ctx); err != nil {
				return err
			}
			n, from = len(edits), edits[len(edits)-1].was.at
			s.told(counts, views)
			return nil
		})
		total += n
		if err != nil || n < sliceRows {
			return total, err
		}
	}
}
