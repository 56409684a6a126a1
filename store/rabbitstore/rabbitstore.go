package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/internal/clock"
	"github.com/duetime/duetime/store"
)

const (
	storeName = "rabbit"

	// callTimeout ends what the store does by itself where nobody else's context
	// would.
	callTimeout = 30 * time.Second
	// closeTimeout is for how long Close tries to give back what is in hand.
	closeTimeout = 2 * time.Second
	// lastAcks is for how long the connection is kept after the last ack.
	lastAcks = 50 * time.Millisecond
)

// Store is a RabbitMQ broker as a store.Store. It is safe for use by any number of
// goroutines.
type Store struct {
	opts      Options
	logger    *slog.Logger
	clock     clock.Clock
	publish   *link
	receiving *link
	publisher *publisher
	topology  *topology
	conf      *conf
	unset     *queueConf // of queues without settings of their own
	wakers    wakers
	seq       atomic.Uint64 // of messages in hand, and of consumers' names
	token     atomic.Uint64 // of leases
	acked     atomic.Int64  // when something was last acked, Unix nanoseconds

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	base   context.Context // ends when Close is nearly done
	finish context.CancelFunc
	work   sync.WaitGroup // goroutines
	calls  sync.WaitGroup // in flight

	mu       sync.Mutex
	isClosed bool
	lanes    map[string]*lane
	known    map[string]bool // queues that this process has declared
}

var (
	_ store.Store          = (*Store)(nil)
	_ store.WaitingClaimer = (*Store)(nil)
)

// Open connects to a broker and declares what is not there yet. opts may be nil.
//
// The URL is amqp://user:password@host:port/vhost, or amqps:// for TLS. Options
// may stand in it too: ?queues=classic, ?prefix=name, ?need=cancel,get; and so may
// those of the client library, such as ?heartbeat=10.
//
// The error wraps store.ErrUnsupported where the program needs what RabbitMQ can
// not do, and is a *store.InputError where the URL or an option is wrong.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = new(Options)
	}
	s := &Store{opts: *opts, clock: clock.New(), unset: defaultConf(), lanes: make(map[string]*lane), known: make(map[string]bool)}
	url, where, err := parseURL(url, &s.opts)
	if err != nil {
		return nil, err
	}
	if err := s.opts.check(); err != nil {
		return nil, err
	}
	if s.logger = s.opts.Logger; s.logger == nil {
		s.logger = slog.Default()
	}
	// A receipt of another process, or of one before a restart, must not fit a
	// lease of this one by accident.
	s.token.Store(rand.Uint64())
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.base, s.finish = context.WithCancel(context.Background())
	if err := s.open(ctx, url, where); err != nil {
		s.cancel()
		s.finish()
		s.work.Wait()
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, url, where string) error {
	program := filepath.Base(os.Args[0])
	config := amqp.Config{Dial: amqp.DefaultDial(dialTimeout)}
	for _, l := range []struct {
		to   **link
		name string
	}{{&s.publish, "publishes"}, {&s.receiving, "receives"}} {
		var err error
		*l.to, err = s.opts.link(ctx, func() (*link, error) {
			return newLink(s.base, url, where, fmt.Sprintf("duetime, %s %d %s", program, os.Getpid(), l.name), config)
		})
		if err != nil {
			return err
		}
	}
	s.publisher = newPublisher(s.publish)
	s.topology = &topology{
		names:  names{prefix: s.opts.Prefix, space: s.opts.space},
		ladder: newLadder(s.opts.powers), kind: s.opts.QueueType, link: s.receiving, ripen: newQueueTime,
	}
	if s.opts.space != "" { // a test whose broker lives on
		s.topology.ripen = 0
	}
	if err := s.topology.declareLadder(ctx); err != nil {
		return err
	}
	s.conf = newConf(s)
	if err := s.conf.open(ctx); err != nil {
		return err
	}
	s.work.Go(s.rescuer)
	return nil
}

// isAway says that an error is that of a broker that is not there, or not yet.
func isAway(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) || errors.As(err, &dns)
}

// now is the store's clock, which is this process's: RabbitMQ tells none.
func (s *Store) now() time.Time { return s.clock.Now().UTC() }

// begin is the start of every operation. Where it returns nil, end has to follow.
func (s *Store) begin(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := store.CheckBatch(n); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

func (s *Store) end() { s.calls.Done() }

// callContext is that of what the store does by itself.
func (s *Store) callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.base, callTimeout)
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	durability := "in quorum queues, confirmed: written to disk by RabbitMQ, on most of its nodes where there are several"
	if s.opts.QueueType == Classic {
		durability = "in durable classic queues, confirmed; but a broker that is killed loses what is between two queues, or comes due while it is down"
	}
	return store.Capabilities{
		Name:       storeName,
		Durability: durability,
		MaxPayload: s.opts.MaxPayload,
		Settings:   true,
		Release:    true,
		Redrive:    true,

		Unordered:     true,
		Uncounted:     true,
		ProcessLeases: true,
	}
}

// Close implements store.Store. What is in hand and was not handed out goes back
// to the broker at once. Leases that are out end with the store: their tasks are
// handed out again, counted as lost.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.isClosed {
		s.mu.Unlock()
		return nil
	}
	s.isClosed = true
	s.mu.Unlock()
	s.cancel()
	s.calls.Wait()
	var lanes sync.WaitGroup
	for _, l := range s.allLanes() {
		lanes.Go(l.empty)
	}
	done := make(chan struct{})
	go func() {
		lanes.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
	}
	// See source.closeIfDone.
	time.Sleep(time.Until(time.Unix(0, s.acked.Load()).Add(lastAcks)))
	s.finish()
	<-s.publish.done
	<-s.receiving.done
	s.work.Wait()
	return nil
}

// empty gives back what is in hand.
func (l *lane) empty() {
	l.shut()
	l.mu.Lock()
	var list []*returned
	for _, e := range l.held {
		list = append(list, &returned{entry: e})
	}
	l.held = nil
	l.mu.Unlock()
	_, _ = l.giveBack(list)
}
