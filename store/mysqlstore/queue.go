package mysqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// queue is what this process knows of a queue. Its number never changes, and
// queues are never removed.
type queue struct {
	id   uint32
	name string

	claiming chan struct{} // one claim of a process at a time
	next     atomic.Int64  // when something becomes claimable, as far as is known here, in ms; a hint
	settings atomic.Pointer[parsed]

	// The claimer's.
	noTurn  time.Time // until when claims do not wait for the turn, as its holder hangs
	reset   time.Time // when the tally was tidied last
	audited time.Time // when the queue was looked at from its beginning last
	moved   time.Time // when the place where claims begin was written last

	wakers *wakers // the store's
}

// parsed is a version of a queue's settings.
type parsed struct {
	store.Settings
	release *release.Schedule
}

// view is a queue as a transaction sees it.
type view struct {
	*queue
	*parsed
	counted int64
}

// sooner notes that something is claimable at an instant, and wakes those who mean
// to sleep longer.
func (q *queue) sooner(at int64) {
	for {
		next := q.next.Load()
		if at >= next {
			return
		}
		if q.next.CompareAndSwap(next, at) {
			q.wakers.tick(q.name)
			return
		}
	}
}

// queues is what is known of all queues.
type queues struct {
	mu     sync.Mutex
	wakers *wakers
	byName map[string]*queue
}

func (k *queues) named(name string) *queue {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byName[name]
}

// learn takes a queue in that was seen in the database.
func (k *queues) learn(id uint32, name string) *queue {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q := k.byName[name]; q != nil && q.id == id {
		return q
	}
	q := &queue{id: id, name: name, claiming: make(chan struct{}, 1), wakers: k.wakers}
	q.next.Store(never)
	k.byName[name] = q
	return q
}

// scanView reads a row of the queue statements.
func (s *Store) scanView(v values) (*view, error) {
	q := s.queues.learn(uint32(v.int(0)), v.string(1))
	version := v.int(2)
	p := q.settings.Load()
	if p == nil || p.Version != version {
		var err error
		if p, err = parseSettings(version, v.bytes(4)); err != nil {
			return nil, fmt.Errorf("%w: the settings of queue %q in the table duetime_queue: %w", store.ErrCorrupt, q.name, err)
		}
		q.settings.Store(p)
	}
	return &view{queue: q, parsed: p, counted: v.int(3)}, nil
}

// views makes a function for link.send that collects views.
func (s *Store) views(into map[uint32]*view) func(values) error {
	return func(v values) error {
		w, err := s.scanView(v)
		if err == nil {
			into[w.id] = w
		}
		return err
	}
}

func parseSettings(version int64, document []byte) (*parsed, error) {
	p := &parsed{Settings: store.DefaultSettings()}
	if document != nil {
		if err := json.Unmarshal(document, &p.Settings); err != nil {
			return nil, err
		}
	}
	p.Version = version
	var err error
	p.release, err = release.Parse(p.Release)
	return p, err
}

// find looks queues up, by name. Those that do not exist are left out.
func (s *Store) find(ctx context.Context, names map[string]bool) (map[string]*queue, error) {
	found := make(map[string]*queue, len(names))
	var missing []string
	for name := range names {
		if q := s.queues.named(name); q != nil {
			found[name] = q
		} else {
			missing = append(missing, name)
		}
	}
	for len(missing) > 0 {
		n := min(len(missing), keysPerStatement)
		err := s.with(ctx, func(ctx context.Context, l *link) error {
			l.add("queue_named", missing[:n])
			return l.send(ctx, func(v values) error {
				w, err := s.scanView(v)
				if err == nil {
					found[w.name] = w.queue
				}
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		missing = missing[n:]
	}
	return found, nil
}

func (s *Store) findOne(ctx context.Context, name string) (*queue, error) {
	if q := s.queues.named(name); q != nil {
		return q, nil
	}
	found, err := s.find(ctx, map[string]bool{name: true})
	return found[name], err
}

// ensure is find, and makes the queues that are missing.
func (s *Store) ensure(ctx context.Context, names map[string]bool) (map[string]*queue, error) {
	found, err := s.find(ctx, names)
	if err != nil || len(found) == len(names) {
		return found, err
	}
	for name := range names {
		if found[name] != nil {
			continue
		}
		err := s.with(ctx, func(ctx context.Context, l *link) error {
			var id uint32
			l.begin()
			l.add("queue_create", name)
			l.add("queue_named", []string{name})
			if err := l.send(ctx, func(v values) error {
				id = uint32(v.int(0))
				return nil
			}); err != nil {
				return err
			}
			rows := make([]tuple, shards)
			for i := range rows {
				rows[i] = tuple{id, i}
			}
			l.add("turn_create", id)
			l.add("tally_create", rows)
			l.commit()
			if err := l.send(ctx); err != nil {
				return err
			}
			found[name] = s.queues.learn(id, name)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
