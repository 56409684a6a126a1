package tieredstore

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.cold.Get(ctx, keys)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, r store.ListRequest) (store.ListPage, error) {
	if err := s.enter(ctx); err != nil {
		return store.ListPage{}, err
	}
	defer s.leave()
	return s.cold.List(ctx, r)
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.cold.Queues(ctx)
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if err := s.enter(ctx); err != nil {
		return store.Stats{}, err
	}
	defer s.leave()
	return s.cold.Stats(ctx, queue)
}

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, queue string) (store.Settings, error) {
	if err := s.enter(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.leave()
	return s.cold.Settings(ctx, queue)
}

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, name string, settings store.Settings) (store.Settings, error) {
	if err := s.enter(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.leave()
	changed, err := s.cold.PutSettings(ctx, name, settings)
	if err == nil {
		q := s.queue(name)
		q.mu.Lock()
		defer q.mu.Unlock()
		if changed.Version > q.settings.Version {
			q.settings, q.readAt = changed, time.Now()
		}
	}
	return changed, err
}

// Redrive implements store.Store. Where all dead tasks come back, the window is
// loaded again.
func (s *Store) Redrive(ctx context.Context, r store.RedriveRequest) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	n, err := s.cold.Redrive(ctx, r)
	if r.All && (n > 0 || err != nil) {
		s.forget(ctx, r.Queue)
		return n, err
	}
	if n > 0 {
		list := make([]standing, len(r.IDs))
		for i, id := range r.IDs {
			list[i] = standing{store.Key{Queue: r.Queue, ID: id}, s.clock.now()}
		}
		s.bring(ctx, list)
	}
	return n, err
}

// Purge implements store.Store. The window is loaded again after it.
func (s *Store) Purge(ctx context.Context, queue string, state store.State) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	n, err := s.cold.Purge(ctx, queue, state)
	if state != store.StateDead && (n > 0 || err != nil) {
		s.forget(ctx, queue)
	}
	return n, err
}

// forget makes claims go to the truth until the window is loaded again.
func (s *Store) forget(ctx context.Context, name string) {
	if store.CheckQueue(name) != nil {
		return
	}
	s.hot.note(context.WithoutCancel(ctx), name, func(ctx context.Context, h Hot) error { return h.Reset(ctx, name) })
	s.queue(name).look()
}
