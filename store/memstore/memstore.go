// Package memstore keeps tasks in memory. It is the reference implementation of
// the store contract, the simplest one that is right, and what tests of programs
// that use duetime run on: under testing/synctest, half an hour passes in
// microseconds. Nothing survives the process.
package memstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

// Options of a store. The zero value, and nil, are right for most.
type Options struct {
	// MaxPayload is how long a task's payload may be, in bytes; 0 means
	// store.MaxPayloadBytes.
	MaxPayload int

	// Now is the store's clock; nil means time.Now. It is called with the
	// store's lock held, so it must not call the store.
	Now func() time.Time

	// Ahead is what Capabilities says of claims ahead. It makes nothing faster here:
	// it is for tests of what has to be true of a store where it does.
	Ahead time.Duration
}

// Store is a store.Store in memory. One mutex guards all of it.
type Store struct {
	maxPayload int
	ahead      time.Duration
	clock      func() time.Time

	mu     sync.Mutex
	closed bool
	queues map[string]*queue
	seq    uint64 // of the last task that was scheduled
	token  uint64 // of the last lease

	wakers wakers
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Importer = (*Store)(nil)
)

// New makes an empty store. It needs no Close, but returns ErrClosed after one.
func New(opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{
		maxPayload: opts.MaxPayload,
		ahead:      opts.Ahead,
		clock:      opts.Now,
		queues:     make(map[string]*queue),
		// A receipt of another store, or of one before a restart, must not fit
		// a lease of this one by accident.
		token: rand.Uint64(),
	}
	if s.maxPayload == 0 {
		s.maxPayload = store.MaxPayloadBytes
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	return s
}

// begin is the start of every operation: it takes the lock and reads the clock.
// Where it returns an error it has not taken the lock.
func (s *Store) begin(ctx context.Context, batch int) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	if err := store.CheckBatch(batch); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return time.Time{}, store.ErrClosed
	}
	return s.clock().UTC(), nil
}

// queue returns a queue as it is now, with the leases that are over ended; nil
// where there is no such queue. All access to queues is through it or create.
func (s *Store) queue(name string, now time.Time) *queue {
	q := s.queues[name]
	if q != nil {
		q.expire(now)
	}
	return q
}

// create is like queue, but makes the queue where there is none.
func (s *Store) create(name string, now time.Time) *queue {
	if q := s.queue(name, now); q != nil {
		return q
	}
	q := newQueue(name, &s.wakers)
	s.queues[name] = q
	return q
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Name:       "memory",
		Durability: "in memory: nothing outlives the process",
		MaxPayload: s.maxPayload,
		Cancel:     true,
		Reschedule: true,
		Get:        true,
		List:       true,
		UniqueIDs:  true,
		Settings:   true,
		Release:    true,
		Redrive:    true,
		Purge:      true,
		Ahead:      s.ahead,
	}
}

// Close implements store.Store. The tasks are gone after it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.queues = true, nil
	return nil
}
