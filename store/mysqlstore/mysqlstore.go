// Package mysqlstore keeps tasks in MySQL 8 or MariaDB 10.6, and later ones of
// either. Any number of processes may use one database at once. Its tables have
// names that begin with duetime_ and may share a database with a program's own:
// then [Store.ScheduleTx], [Store.CancelTx] and [Store.AckTx] make a task exist if
// and only if the order does.
//
// # How it works
//
// There is one row for each task, in the table duetime_task; the row's columns
// state and at say all about whether it waits, is leased until when, or is dead. The
// index by_at (queue_id, state, at, seq) has the tasks of each state in the order
// in which they are needed, so that a claim reads neighbours and sorts nothing.
//
// A claim is one transaction of three packets: it takes the queue's turn and the
// time, locks the first tasks that are due with SKIP LOCKED, and leases all of them
// with one UPDATE. The turn (a row of duetime_turn) lets claimers of many processes
// follow each other; what is right does not depend on it, so that one that hangs
// while it has its turn costs the others two seconds, once, and no more. The turn
// also says from where to look: rows that were deleted before it, and that the server
// has not purged yet, are not walked. What is put in before that place is noted in
// the tally, in the same transaction.
//
// Counters are rows of duetime_tally, a few dozen for each queue, so that
// transactions do not wait for each other to count. Which tasks are ready changes
// by time alone: Stats counts what became due since it was asked last, and notes up to
// where it has counted.
//
// The clock is the server's. Its time zone, character sets, SQL mode and isolation
// level do not matter: times are whole milliseconds since 1970, ids and payloads
// are bytes, and the settings of our sessions are our own (see session.go).
package mysqlstore

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/store"
)

// minConnections is how many connections a store needs at least.
const minConnections = 4

// Options of a store. The zero value, and nil, are right for most.
type Options struct {
	// MaxPayload is how long a task's payload may be, in bytes; 0 means
	// store.MaxPayloadBytes. The server's max_allowed_packet must be four times as
	// much.
	MaxPayload int

	// Connections is how many connections to the server may be open at once; 0
	// means 16. They are opened when they are needed, and closed after half a minute
	// without use.
	Connections int

	// TLS is used in the place of what the URL says; nil means the URL's.
	TLS *tls.Config

	// Logger gets what an operator should see; nil means slog.Default.
	Logger *slog.Logger

	// now is the store's clock in tests that move it; nil means the server's.
	now func() time.Time
}

// Store is a store.Store in MySQL or MariaDB. It is safe for use by any number of
// goroutines.
type Store struct {
	opts       Options
	db         *sql.DB
	database   string
	name       string // the database's own, in duetime_meta: no two have the same
	sql        statements
	server     *server
	sliceBytes int

	queues    queues
	wakers    wakers
	nextShard atomic.Uint64
	offset    atomic.Int64 // of the server's clock from this machine's, in ns; a hint
	closely   atomic.Int64 // until when the watcher looks often, in Unix ns
	kick      chan struct{}

	ctx        context.Context // ends with the store
	stop       context.CancelFunc
	background sync.WaitGroup

	ops    sync.RWMutex // held by every operation; Close takes it for good
	closed bool
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Importer = (*Store)(nil)
)

// Open connects to the database that a URL names, such as
// mysql://user:password@host:3306/shop, and makes or brings up to date the tables
// that are needed; the user then needs the right to create tables. Parameters:
//
//	socket=PATH              connect through a Unix socket
//	tls=true                 encrypt, and check the certificate; also skip-verify, preferred, false
//	connect_timeout=10s      for making a connection
//	connections=16           Options.Connections
//
// It refuses servers that have no SKIP LOCKED, that are read-only, or whose
// settings could not work, with what to change. An error that is about the URL is
// a *store.InputError.
func Open(ctx context.Context, rawURL string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	config, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: *opts, database: config.DBName, sql: loadStatements(config.DBName), kick: make(chan struct{}, 1)}
	if s.opts.Connections == 0 {
		if s.opts.Connections, err = connectionsIn(rawURL); err != nil {
			return nil, err
		}
	}
	if s.opts.Connections == 0 {
		s.opts.Connections = 16
	}
	if s.opts.Connections < minConnections {
		return nil, store.NewInputError("connections", s.opts.Connections, "must be %d or more", minConnections)
	}
	if s.opts.MaxPayload == 0 {
		s.opts.MaxPayload = store.MaxPayloadBytes
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	if opts.TLS != nil {
		config.TLS = opts.TLS
	}
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("mysql %s: %w", storeurl.Shown(rawURL), err)
	}
	s.queues = queues{wakers: &s.wakers, byName: make(map[string]*queue)}
	s.nextShard.Store(rand.Uint64N(shards))
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.db = sql.OpenDB(connector{inner})
	s.db.SetMaxOpenConns(s.opts.Connections)
	s.db.SetMaxIdleConns(s.opts.Connections)
	s.db.SetConnMaxIdleTime(idleTime)
	if err := s.start(ctx); err != nil {
		s.stop()
		_ = s.db.Close()
		return nil, fmt.Errorf("mysql %s: %w", storeurl.Shown(rawURL), err)
	}
	return s, nil
}

func (s *Store) start(ctx context.Context) (err error) {
	if s.server, err = s.inspect(ctx); err != nil {
		return err
	}
	if need := 4 * s.opts.MaxPayload; s.server.maxPacket < need {
		return fmt.Errorf("the server's max_allowed_packet is %d bytes: set it to %d or more for payloads of %d bytes", s.server.maxPacket, need, s.opts.MaxPayload)
	}
	s.sliceBytes = min(sliceBytes, s.server.maxPacket/2)
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	if err := s.db.QueryRowContext(ctx, withTables("SELECT value FROM {meta} WHERE name = 'store'", s.database)).Scan(&s.name); err != nil {
		return fmt.Errorf("the table duetime_meta does not say which store this is: %w", err)
	}
	_, err = s.time(ctx)
	return err
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Name:       "mysql",
		Durability: s.server.durability,
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

// enter begins an operation. Where it returns nil, leave must follow.
func (s *Store) enter(ctx context.Context, batch int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := store.CheckBatch(batch); err != nil {
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

// Close implements store.Store. Tasks that are leased stay so until their leases
// end.
func (s *Store) Close() error {
	s.ops.Lock()
	defer s.ops.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.wakers.mu.Lock()
	s.wakers.closed = true
	s.wakers.mu.Unlock()
	s.stop()
	s.background.Wait()
	if err := s.db.Close(); err != nil && !errors.Is(err, mysql.ErrInvalidConn) {
		return fmt.Errorf("mysql: close: %w", err)
	}
	return nil
}

func validName(name string) bool { return store.CheckQueue(name) == nil }
