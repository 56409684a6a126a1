package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

// Store is a store.Store on Redis. It is safe for use by any number of
// goroutines.
type Store struct {
	opts   Options
	client rueidis.Client
	server serverInfo
	how    string                 // how scripts wake others: see wake in prelude.lua
	origin atomic.Pointer[string] // what tells this store's wake-ups from those of others

	operations atomic.Pointer[scripts]
	clock      serverClock

	ops    sync.RWMutex // held for reading by every operation, for writing by Close
	closed bool
	ending context.Context // ends with the store
	end    context.CancelFunc
	starts sync.Mutex // held while a job is started, and while the store ends
	jobs   sync.WaitGroup

	mu     sync.RWMutex
	queues map[string]*queue

	counts counts
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Overlapper = (*Store)(nil)
)

// Open connects to a server and looks whether it can be trusted with tasks.
func Open(ctx context.Context, opts *Options) (*Store, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{opts: o, queues: make(map[string]*queue)}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.inspect(ctx); err != nil {
		s.client.Close()
		return nil, err
	}
	var id [6]byte
	_, _ = rand.Read(id[:]) // does not fail
	origin := hex.EncodeToString(id[:])
	s.origin.Store(&origin)
	s.operations.Store(newScripts(serverTime))
	s.ending, s.end = context.WithCancel(context.Background())
	if o.Sweep > 0 {
		s.start(s.sweeper)
	}
	return s, nil
}

// connect makes the client. A client that is made connects at once, without
// regard for a context, so that it is made aside.
func (s *Store) connect(ctx context.Context) error {
	option := rueidis.ClientOption{
		InitAddress:  s.opts.Addrs,
		Username:     s.opts.Username,
		Password:     s.opts.Password,
		TLSConfig:    s.opts.TLS,
		SelectDB:     s.opts.DB,
		ClientName:   "duetime",
		DisableCache: true, // nothing is cached on our side
		// Repeated reads would wait for a server that is down until the caller gives up,
		// and nobody would hear that it is.
		DisableRetry:  true,
		ShuffleInit:   true,
		ClientNoTouch: false,
	}
	option.Dialer.Timeout = dialTimeout
	// An answer that takes longer means that the connection is gone; scripts
	// take milliseconds.
	option.ConnWriteTimeout = answerTimeout
	switch {
	case s.opts.Cluster:
		option.ClusterOption.ShardsRefreshInterval = refreshTopology
	case s.opts.Sentinel != "":
		option.Sentinel = rueidis.SentinelOption{
			MasterSet: s.opts.Sentinel,
			Username:  s.opts.SentinelUsername, Password: s.opts.SentinelPassword,
			TopologyRefreshInterval: refreshTopology,
		}
	default:
		option.ForceSingleClient = true
	}
	type made struct {
		client rueidis.Client
		err    error
	}
	done := make(chan made, 1)
	go func() {
		c, err := rueidis.NewClient(option)
		done <- made{c, err}
	}()
	select {
	case m := <-done:
		if m.err != nil {
			return s.advise(strings.Join(s.opts.Addrs, ", "), m.err)
		}
		s.client = m.client
		return nil
	case <-ctx.Done():
		go func() {
			if m := <-done; m.err == nil {
				m.client.Close()
			}
		}()
		return fmt.Errorf("redis at %s: %w", strings.Join(s.opts.Addrs, ", "), ctx.Err())
	}
}

func (s *Store) scripts() *scripts { return s.operations.Load() }

// enter is the start of every operation; s.ops is to be unlocked after it, where
// it returns no error.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.ops.RLock()
	if s.closed {
		s.ops.RUnlock()
		return store.ErrClosed
	}
	return nil
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Name:       "redis",
		Durability: s.server.durability(&s.opts),
		MaxPayload: s.opts.MaxPayload,
		Cancel:     true,
		Reschedule: true,
		Get:        true,
		List:       true,
		UniqueIDs:  true,
		Settings:   true,
		Release:    true,
		Redrive:    true,
		Purge:      true,
		Ahead:      claimAhead,
	}
}

// start runs a job beside the calls, which ends when s.ending does; it does not
// where the store has ended.
func (s *Store) start(job func()) {
	s.starts.Lock()
	defer s.starts.Unlock()
	if s.ending.Err() == nil {
		s.jobs.Go(job)
	}
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.ops.Lock()
	was := s.closed
	s.closed = true
	s.ops.Unlock()
	if was {
		return nil
	}
	s.starts.Lock()
	s.end()
	s.starts.Unlock()
	s.jobs.Wait()
	s.client.Close()
	return nil
}

// Overlap implements store.Overlapper: calls share a connection, and Redis carries
// out one while the next is on its way.
func (s *Store) Overlap() int { return 2 }
