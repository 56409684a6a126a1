package mysqlsource

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/takeovertest"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

const queue = "q"

// shared is one server for all tests, set up as a careless owner might.
var shared struct {
	sync.Mutex
	server *testserver.MariaDBServer
	err    error
	n      atomic.Int64
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	os.Exit(code)
}

func serverForAll(t testing.TB) *testserver.MariaDBServer {
	t.Helper()
	testserver.NeedMariaDB(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = testserver.StartMariaDB(&testserver.MariaDBOptions{Config: []string{
			"--default-time-zone=+09:00", "--character-set-server=latin1", "--collation-server=latin1_german1_ci",
			"--sql-mode=NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "--autocommit=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=O_DIRECT_NO_FSYNC", "--skip-innodb-doublewrite",
		}})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// world is a table of a hand-made scheduler, whose consumers are still there, and a
// store with a worker. It knows what ran where.
type world struct {
	testing.TB
	ctx  context.Context
	url  string
	db   *sql.DB
	dest *takeovertest.Dest
	want map[string]takeovertest.Entry
	old  map[string]int // runs by the old consumers
}

// newWorld has a database of its own.
func newWorld(t testing.TB) *world {
	t.Helper()
	m := serverForAll(t)
	w := &world{TB: t, ctx: t.Context()}
	w.dest = takeovertest.NewDest(t, queue)
	w.want, w.old = make(map[string]takeovertest.Entry), make(map[string]int)
	name := fmt.Sprintf("t%d", shared.n.Add(1))
	var err error
	w.db, err = sql.Open("mysql", "root@tcp("+m.Addr+")/?autocommit=1&interpolateParams=true&charset=utf8mb4")
	w.must(err)
	t.Cleanup(func() { _ = w.db.Close() })
	w.exec("CREATE DATABASE " + name)
	w.must(w.db.Close())
	w.db, err = sql.Open("mysql", "root@tcp("+m.Addr+")/"+name+"?autocommit=1&interpolateParams=true&charset=utf8mb4")
	w.must(err)
	w.url = "mysql://root@" + m.Addr + "/" + name
	return w
}

// table makes the table that most tests have: numbers of milliseconds, payloads of
// bytes, and a status that is 0 while a row waits.
func (w *world) table() {
	w.Helper()
	w.exec("CREATE TABLE orders (n INT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE, at BIGINT, payload LONGBLOB, status INT NOT NULL DEFAULT 0) ENGINE=InnoDB ROW_FORMAT=DYNAMIC")
}

func options() Options {
	return Options{
		Table: "orders", IDColumn: "id", DueColumn: "at", PayloadColumn: "payload", Where: "status = 0", Unit: takeover.Milliseconds,
		Queue: queue, To: "to", MaxPayload: store.MaxPayloadBytes, Patience: 2 * time.Second, slice: 7,
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) exec(text string, args ...any) int64 {
	w.Helper()
	r, err := w.db.ExecContext(context.Background(), text, args...)
	if err != nil {
		w.Fatalf("%.300s: %v", text, err)
	}
	n, err := r.RowsAffected()
	w.must(err)
	return n
}

func (w *world) number(text string, args ...any) (n int64) {
	w.Helper()
	w.must(w.db.QueryRow(text, args...).Scan(&n))
	return n
}

// add is a producer of the old system.
func (w *world) add(id string, due time.Time) {
	w.Helper()
	e := takeovertest.Entry{Due: due, Payload: "payload of " + id + "\x00\xff"}
	w.want[id] = e
	w.exec("INSERT INTO orders (id, at, payload) VALUES (?, ?, ?)", id, due.UnixMilli(), []byte(e.Payload))
}

func (w *world) fill() {
	w.Helper()
	now := w.dest.Clock.Now().Truncate(time.Millisecond)
	for i := range 6 {
		w.add(fmt.Sprint("past", i), now.Add(-time.Duration(i)*time.Minute))
		w.add(fmt.Sprint("future ", i), now.Add(time.Duration(i+1)*time.Hour))
	}
	for _, id := range []string{"a", "A", "é", "e\u0301", "日本 {}:/\"\\<'", "%_", "😀"} {
		w.add(id, now.Add(time.Minute))
	}
}

// pop is a consumer of the old system: it runs what it has changed to done.
func (w *world) pop() {
	w.Helper()
	var id string
	err := w.db.QueryRow("SELECT id FROM orders WHERE status = 0 AND at <= ? ORDER BY at LIMIT 1", w.dest.Clock.Now().UnixMilli()).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return
	}
	w.must(err)
	if w.exec("UPDATE orders SET status = 1 WHERE status = 0 AND id = ?", id) == 1 {
		w.old[id]++
	}
}

func (w *world) source(opts Options) *Source {
	w.Helper()
	s, err := Open(w.ctx, w.url, opts)
	w.must(err)
	w.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *world) run(opts Options) *takeover.Report {
	w.Helper()
	s := w.source(opts)
	r, err := takeover.Run(w.ctx, s, w.dest, takeover.Options{Queue: queue})
	w.must(err)
	w.must(s.Close())
	return r
}

// check says that each row has run once, by the old consumers or by the worker, as it
// was and not early, and that nothing is left behind.
func (w *world) check() {
	w.Helper()
	w.dest.Check(w.want, w.old)
	if n := w.number("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'duetime%'"); n != 0 {
		w.Errorf("%d tables are left", n)
	}
}

// runDying runs a process that ends at its nth step, and says whether it did.
func (w *world) runDying(opts Options, n int, before bool, do func(step int)) (steps int, killed bool) {
	w.Helper()
	s := w.source(opts)
	d := &takeovertest.Dying{Source: s, N: n, Before: before, Do: do}
	steps, killed = d.Run(w.ctx, w.dest, takeover.Options{Queue: queue})
	w.must(s.Close())
	return steps, killed
}

// says wants an input error with some words.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	var input *store.InputError
	if !errors.As(err, &input) {
		t.Errorf("error %v, want an input error that says %q", err, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %v, want one that says %q", err, word)
		}
	}
}
