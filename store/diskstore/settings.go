package diskstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// queue is the queue with a name, or nil where there is none.
func (s *Store) queue(name string) *queue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q := s.queues[name]; q != nil && q.exists {
		return q
	}
	return nil
}

// makeQueue is the queue with a name, made on disk where there is none.
func (s *Store) makeQueue(name string) (*queue, error) {
	if q := s.queue(name); q != nil {
		return q, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.known(name)
	if q.exists {
		return q, nil
	}
	s.lastNum++
	q.num = s.lastNum
	if err := s.writeQueue(q, q.settings); err != nil {
		return nil, err
	}
	q.exists = true
	return q, nil
}

// known is the queue with a name, made in memory where there is none: somebody
// may wait for a queue before it exists. s.mu is held.
func (s *Store) known(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{s: s, name: name, settings: store.DefaultSettings(), headDue: never}
		q.release, _ = release.Parse(store.ReleaseImmediate)
		s.queues[name] = q
	}
	return q
}

func (s *Store) writeQueue(q *queue, settings store.Settings) error {
	doc, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	_ = b.Set(queueKey(q.name), append(binary.BigEndian.AppendUint32(nil, q.num), doc...), nil)
	return s.commit(b)
}

// readQueue reads what writeQueue wrote.
func (s *Store) readQueue(name string, value []byte) (*queue, error) {
	q := s.known(name)
	q.exists = true
	settings := store.DefaultSettings()
	if len(value) < 4 {
		return nil, fmt.Errorf("queue %q: settings: %w", name, store.ErrCorrupt)
	}
	q.num = binary.BigEndian.Uint32(value)
	if err := json.Unmarshal(value[4:], &settings); err != nil {
		return nil, fmt.Errorf("queue %q: settings: %w: %w", name, store.ErrCorrupt, err)
	}
	r, err := release.Parse(settings.Release)
	if err != nil {
		return nil, fmt.Errorf("queue %q: %w", name, err)
	}
	q.settings, q.release = settings, r
	return q, nil
}

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, name string) (store.Settings, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Settings{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.ops.RUnlock()
	q := s.queue(name)
	if q == nil {
		return store.DefaultSettings(), nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.settings, nil
}

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, name string, settings store.Settings) (store.Settings, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Settings{}, err
	}
	if err := settings.Check(); err != nil {
		return store.Settings{}, err
	}
	r, err := release.Parse(settings.Release)
	if err != nil {
		return store.Settings{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.ops.RUnlock()
	if s.queue(name) == nil && settings.Version != 0 {
		return store.Settings{}, store.ErrVersion
	}
	q, err := s.makeQueue(name)
	if err != nil {
		return store.Settings{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if settings.Version != q.settings.Version {
		return store.Settings{}, store.ErrVersion
	}
	settings.Version++
	if err := s.writeQueue(q, settings); err != nil {
		return store.Settings{}, err
	}
	q.settings, q.release = settings, r
	q.tick()
	return settings, nil
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]string, 0, len(s.queues))
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if s.queues[name].exists {
			names = append(names, name)
		}
	}
	return names, nil
}

// Wake implements store.Store.
func (s *Store) Wake(name string) (<-chan struct{}, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.known(name)
	ch := make(chan struct{}, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.subs == nil {
		q.subs = make(map[chan struct{}]struct{})
	}
	q.subs[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.subs, ch)
		if !q.exists && len(q.subs) == 0 {
			delete(s.queues, name) // nobody made it while it was waited for
		}
	}
}
