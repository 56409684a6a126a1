package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	if _, err := s.begin(ctx, 0); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.queues)), nil
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Stats{}, err
	}
	now, err := s.begin(ctx, 0)
	if err != nil {
		return store.Stats{}, err
	}
	defer s.mu.Unlock()
	q := s.queue(name, now)
	if q == nil {
		return store.Stats{}, nil
	}
	ready := q.waiting.upTo(now.UnixMilli())
	stats := store.Stats{
		Scheduled: int64(q.waiting.len() - ready),
		Ready:     int64(ready),
		Leased:    int64(q.leased.len()),
		Dead:      int64(q.dead.len()),
	}
	if ready > 0 {
		stats.OldestDue = q.waiting.first().Due
	}
	q.waiting.after(endOf(now), func(t *task) bool {
		stats.NextDue = t.Due
		return false
	})
	return stats, nil
}

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, name string) (store.Settings, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Settings{}, err
	}
	now, err := s.begin(ctx, 0)
	if err != nil {
		return store.Settings{}, err
	}
	defer s.mu.Unlock()
	if q := s.queue(name, now); q != nil {
		return q.settings, nil
	}
	return store.DefaultSettings(), nil
}

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, name string, settings store.Settings) (store.Settings, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Settings{}, err
	}
	if err := settings.Check(); err != nil {
		return store.Settings{}, err
	}
	schedule, err := release.Parse(settings.Release)
	if err != nil {
		return store.Settings{}, err
	}
	now, err := s.begin(ctx, 0)
	if err != nil {
		return store.Settings{}, err
	}
	defer s.mu.Unlock()
	var version int64
	if q := s.queue(name, now); q != nil {
		version = q.settings.Version
	}
	if settings.Version != version {
		return store.Settings{}, store.ErrVersion
	}
	settings.Version++
	q := s.create(name, now)
	q.settings, q.release = settings, schedule
	s.wakers.tick(name)
	return settings, nil
}

// Redrive implements store.Store. All of it happens at once.
func (s *Store) Redrive(ctx context.Context, r store.RedriveRequest) (int, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	now, err := s.begin(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	q := s.queue(r.Queue, now)
	if q == nil {
		return 0, nil
	}
	var tasks []*task
	if r.All {
		tasks = q.all(store.StateDead, key{}, endOfTime)
	}
	for _, id := range r.IDs {
		if t := q.tasks[id]; t != nil {
			tasks = append(tasks, t)
		}
	}
	count := 0
	for _, t := range tasks {
		if t.State != store.StateDead { // or an id that is in the list twice
			continue
		}
		q.remove(t)
		t.State, t.Failures, t.Lost, t.Due = store.StateScheduled, 0, 0, now.Truncate(time.Millisecond)
		q.add(t)
		count++
	}
	return count, nil
}

// Purge implements store.Store. All of it happens at once.
func (s *Store) Purge(ctx context.Context, name string, state store.State) (int, error) {
	if err := (&store.ListRequest{Queue: name, State: state}).Check(); err != nil {
		return 0, err
	}
	now, err := s.begin(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	q := s.queue(name, now)
	if q == nil {
		return 0, nil
	}
	from, to := bounds(state, now)
	tasks := q.all(state, from, to)
	for _, t := range tasks {
		q.remove(t)
	}
	return len(tasks), nil
}
