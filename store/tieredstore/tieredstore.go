package tieredstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// DefaultWindow is how far ahead the hot store knows what comes next.
	DefaultWindow = 5 * time.Minute

	minWindow = 10 * time.Second
	maxWindow = 24 * time.Hour
)

// Options of a store. The zero value, and nil, are right for most.
type Options struct {
	// Window is how far ahead the hot store has tasks, from 10 s to 24 h; 0 means
	// DefaultWindow. It takes some hundred bytes for each task that is due within
	// it and an eighth more. All processes should have the same.
	Window time.Duration

	// Logger gets what an operator should see; nil means slog.Default.
	Logger *slog.Logger

	// For tests.
	now      func() time.Time          // the cold store's clock
	step     func(point, queue string) // called between two steps
	auditing time.Duration             // in the place of auditEvery
}

// Store is a store.Store over two others. It is safe for use by any number of
// goroutines.
type Store struct {
	opts  Options
	cold  Cold
	node  string
	clock clock
	hot   hot

	asking sync.Mutex // held by who asks for the time

	mu     sync.Mutex
	queues map[string]*queue

	counts counts

	ctx        context.Context // ends with the store
	stop       context.CancelFunc
	background sync.WaitGroup

	ops    sync.RWMutex // held by every operation; Close takes it for good
	closed bool
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Importer = (*Store)(nil)
	_ store.Measurer = (*Store)(nil)
	_ store.Degrader = (*Store)(nil)
)

// Open makes a store of a cold one and of a hot one, which openHot opens; both are
// closed with it. Where the hot store can not be reached, the store works without it
// and tries again each second; an error of openHot that is a *store.InputError is
// returned. On an error cold is not closed.
func Open(ctx context.Context, cold Cold, openHot func(context.Context) (Hot, error), opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{opts: *opts, cold: cold, queues: make(map[string]*queue)}
	if s.opts.Window == 0 {
		s.opts.Window = DefaultWindow
	}
	if s.opts.Window < minWindow || s.opts.Window > maxWindow {
		return nil, store.NewInputError("window", s.opts.Window, "must be %v to %v", minWindow, maxWindow)
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	if s.opts.auditing == 0 {
		s.opts.auditing = auditEvery
	}
	s.clock.fixed = opts.now
	var node [8]byte
	_, _ = rand.Read(node[:]) // does not fail
	s.node = hex.EncodeToString(node[:])
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.hot = hot{s: s, open: openHot, dirty: make(map[string]bool)}

	if err := s.askTime(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("tiered: %w", err)
	}
	if err := s.hot.connect(ctx); err != nil {
		var wrong *store.InputError
		if errors.As(err, &wrong) || ctx.Err() != nil {
			s.stop()
			return nil, err
		}
		s.hot.lose(err)
	}
	s.background.Go(s.hot.watch)
	return s, nil
}

// askTime asks what the cold store's clock shows.
func (s *Store) askTime(ctx context.Context) error {
	_, now, err := s.cold.ListPlaces(ctx, "-", store.StateScheduled, store.Place{}, store.MinTime, 1)
	if err == nil {
		s.clock.saw(now)
	}
	return err
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	c := s.cold.Capabilities()
	c.Name = "tiered"
	return c
}

// enter begins an operation. Where it returns nil, leave must follow.
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

func (s *Store) leave() { s.ops.RUnlock() }

// at is where tests do something between two steps.
func (s *Store) at(point, queue string) {
	if s.opts.step != nil {
		s.opts.step(point, queue)
	}
}

// Close implements store.Store. Both stores are closed.
func (s *Store) Close() error {
	s.ops.Lock()
	defer s.ops.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.background.Wait()
	s.hot.close()
	return s.cold.Close()
}
