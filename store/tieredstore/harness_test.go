package tieredstore

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/mysqlstore"
	"github.com/duetime/duetime/store/redisstore"
	"github.com/duetime/duetime/store/storetest"
)

// shared are servers that most tests use, each with a database and a prefix of its
// own.
var shared struct {
	sync.Mutex
	maria *testserver.MariaDBServer
	redis *testserver.RedisServer
	err   error
	n     atomic.Int64
}

func TestMain(m *testing.M) {
	if url := os.Getenv(consumerEnv); url != "" {
		if err := consume(url, os.Getenv(consumerEnv+"_REDIS"), os.Getenv(consumerEnv+"_NAME"), os.Getenv(consumerEnv+"_LOG")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if shared.maria != nil {
		shared.maria.Close()
	}
	if shared.redis != nil {
		shared.redis.Close()
	}
	os.Exit(code)
}

// pair is a cold and a hot server, and what a store of the test is to find there.
type pair struct {
	url    string // of the database
	redis  string // host:port
	prefix string
	opts   Options
	now    func() time.Time // the truth's clock; nil: the server's

	looking *sync.Mutex
}

// newPair is a pair on the shared servers.
func newPair(t testing.TB) *pair {
	t.Helper()
	testserver.Need(t, "mariadb")
	testserver.Need(t, "redis-server")
	shared.Lock()
	defer shared.Unlock()
	if shared.maria == nil && shared.err == nil {
		if shared.maria, shared.err = testserver.StartMariaDB(&testserver.MariaDBOptions{Config: []string{"--innodb-buffer-pool-size=256M"}}); shared.err == nil {
			shared.redis, shared.err = testserver.StartRedis(nil)
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return &pair{url: database(t, shared.maria), redis: shared.redis.Addr, prefix: fmt.Sprintf("t%d", shared.n.Add(1)), looking: new(sync.Mutex)}
}

// database makes an empty one, and returns its URL.
func database(t testing.TB, m *testserver.MariaDBServer) string {
	t.Helper()
	name := fmt.Sprintf("t%d", shared.n.Add(1))
	db := admin(t, m)
	execute(t, db, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, db, "DROP DATABASE IF EXISTS "+name) })
	return "mysql://root@" + m.Addr + "/" + name
}

func admin(t testing.TB, m *testserver.MariaDBServer) *sql.DB {
	db, err := sql.Open("mysql", "root@tcp("+m.Addr+")/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t testing.TB, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), text); err != nil {
		t.Error(text, err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (p *pair) openHot(ctx context.Context) (Hot, error) {
	r, err := redisstore.Open(ctx, &redisstore.Options{Addrs: []string{p.redis}, Prefix: p.prefix, Sweep: -1})
	if err != nil {
		return nil, err
	}
	return r.Windows(), nil
}

func (p *pair) openCold() (*mysqlstore.Store, error) {
	o := &mysqlstore.Options{Logger: quiet()}
	if p.now != nil {
		o.SetClock(p.now)
	}
	return mysqlstore.Open(context.Background(), p.url, o)
}

// open opens a store, which the test closes if it wants to.
func (p *pair) open(t testing.TB) *Store {
	t.Helper()
	s := p.openForSuite(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// openForSuite leaves closing to the suite, which looks into the store at the end.
func (p *pair) openForSuite(t testing.TB) *Store {
	t.Helper()
	s, err := p.tryOpen()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *pair) tryOpen() (*Store, error) {
	opts := p.opts
	opts.now = p.now
	if opts.Logger == nil {
		opts.Logger = quiet()
	}
	cold, err := p.openCold()
	if err != nil {
		return nil, err
	}
	s, err := Open(context.Background(), cold, p.openHot, &opts)
	if err != nil {
		_ = cold.Close()
	}
	return s, err
}

// harness opens stores whose clock is moved by the test. Where always is set, the
// window is loaded before each claim, so that what is claimed comes through it.
func harness(always bool) func(t testing.TB) *storetest.Instance {
	return func(t testing.TB) *storetest.Instance {
		p := newPair(t)
		clock := storetest.NewClock()
		p.now = clock.Now
		open := func(t testing.TB) *Store {
			q := *p
			var s atomic.Pointer[Store]
			if always {
				q.opts.auditing = time.Hour
				q.opts.step = func(point, queue string) {
					if st := s.Load(); point == "claim" && st != nil {
						q.whole(t, st, queue)
					}
				}
			}
			opened := q.openForSuite(t)
			s.Store(opened)
			return opened
		}
		return &storetest.Instance{
			Store: open(t), Advance: clock.Advance,
			Reopen: func(t testing.TB) store.Store { return open(t) },
		}
	}
}

// The suite as a whole takes minutes over two servers; an ordinary run has what a
// window has to do with.
func TestConformance(t *testing.T) {
	through, asItComes := []string{"claim", "cancel", "reschedule", "concurrency"}, []string{"next", "wake"}
	if os.Getenv("DUETIME_LONG") != "" {
		through, asItComes = nil, nil
	}
	t.Run("through the window", func(t *testing.T) {
		storetest.RunOnly(t, storetest.Harness{Open: harness(true)}, through...)
	})
	t.Run("as it comes", func(t *testing.T) {
		storetest.RunOnly(t, storetest.Harness{Open: harness(false)}, asItComes...)
	})
}
