package mysqlstore

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

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

// shared is one server for most tests: each has a database of its own. What it is
// set to is what a careless owner might set: nothing of it may matter.
var shared struct {
	sync.Mutex
	server *testserver.MariaDBServer
	err    error
	n      atomic.Int64
}

var careless = []string{
	"--default-time-zone=+09:00", "--character-set-server=latin1", "--collation-server=latin1_german1_ci",
	"--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "--transaction-isolation=SERIALIZABLE", "--autocommit=0",
	"--innodb-buffer-pool-size=256M",
}

func TestMain(m *testing.M) {
	if url := os.Getenv(consumerEnv); url != "" {
		if err := consume(url, os.Getenv(consumerEnv+"_NAME"), os.Getenv(consumerEnv+"_LOG"), os.Getenv(consumerEnv+"_MODE")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	os.Exit(code)
}

func serverForAll(t testing.TB) *testserver.MariaDBServer {
	testserver.NeedMariaDB(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = testserver.StartMariaDB(&testserver.MariaDBOptions{Config: append([]string{
			"--innodb-flush-log-at-trx-commit=2", // what is tested here is not the disk
		}, careless...)})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// database makes an empty database and returns its URL.
func database(t testing.TB) string { return databaseOn(t, serverForAll(t)) }

func databaseOn(t testing.TB, m *testserver.MariaDBServer) string {
	name := fmt.Sprintf("t%d", shared.n.Add(1))
	db := admin(t, m, "")
	execute(t, db, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, db, "DROP DATABASE "+name) })
	return "mysql://root@" + m.Addr + "/" + name
}

// admin is a connection of no store's, with the driver's own settings.
func admin(t testing.TB, m *testserver.MariaDBServer, name string) *sql.DB {
	db, err := sql.Open("mysql", "root@tcp("+m.Addr+")/"+name+"?multiStatements=true&autocommit=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t testing.TB, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func open(t testing.TB, url string, opts *Options) *Store {
	t.Helper()
	s := openForSuite(t, url, opts)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// openForSuite leaves closing to the suite, which looks into the store at the end.
func openForSuite(t testing.TB, url string, opts *Options) *Store {
	t.Helper()
	if opts == nil {
		opts = &Options{}
	}
	opts.Logger = quiet()
	s, err := Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// harness opens stores whose clock is moved by the test.
func harness(t testing.TB) *storetest.Instance {
	clock := storetest.NewClock()
	url := database(t)
	opts := func() *Options { return &Options{now: clock.Now} }
	return &storetest.Instance{
		Store:   open(t, url, opts()),
		Advance: clock.Advance,
		Reopen:  func(t testing.TB) store.Store { return openForSuite(t, url, opts()) },
	}
}

// realHarness opens stores with the server's own clock.
func realHarness(t testing.TB) *storetest.Instance {
	url := database(t)
	return &storetest.Instance{
		Store:  open(t, url, nil),
		Reopen: func(t testing.TB) store.Store { return openForSuite(t, url, nil) },
	}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: harness})
}

// With the server's own clock, which runs.
func TestServersClock(t *testing.T) {
	groups := []string{"claim", "next", "wake"}
	if os.Getenv("DUETIME_LONG") != "" {
		groups = nil
	}
	storetest.RunOnly(t, storetest.Harness{Open: realHarness}, groups...)
}
