package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

// shop is a store, and orders in the same database, in a pool with the server's own
// careless settings.
type shop struct {
	testing.TB
	*Store
	ctx   context.Context
	clock *storetest.Clock
	db    *sql.DB
}

func newShop(t testing.TB) *shop {
	url := database(t)
	clock := storetest.NewClock()
	name, err := DataSource(url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	execute(t, db, "CREATE TABLE orders (number INT PRIMARY KEY, state VARCHAR(20)) ENGINE=InnoDB")
	return &shop{TB: t, Store: open(t, url, &Options{now: clock.Now}), ctx: context.Background(), clock: clock, db: db}
}

func (s *shop) begin() *sql.Tx {
	s.Helper()
	tx, err := s.db.BeginTx(s.ctx, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *shop) orders() (n int) {
	s.Helper()
	s.must(s.Store.db.QueryRow("SELECT COUNT(*) FROM orders").Scan(&n))
	return n
}

func (s *shop) claim() []store.Lease {
	s.Helper()
	r, err := s.Claim(s.ctx, []store.ClaimRequest{{Queue: "timeouts", Max: 100, Lease: time.Minute}})
	s.must(err)
	return r[0].Tasks
}

// counts wants the counters, and that a recount has the same.
func (s *shop) counts(scheduled, ready, leased, dead int64) {
	s.Helper()
	st, err := s.Stats(s.ctx, "timeouts")
	s.must(err)
	if got, want := [4]int64{st.Scheduled, st.Ready, st.Leased, st.Dead}, [4]int64{scheduled, ready, leased, dead}; got != want {
		s.Fatalf("stats count %v scheduled, ready, leased, dead; want %v", got, want)
	}
	for _, state := range store.States() {
		page, err := s.List(s.ctx, store.ListRequest{Queue: "timeouts", State: state, Limit: 1000})
		s.must(err)
		want := map[store.State]int64{store.StateScheduled: scheduled, store.StateReady: ready, store.StateLeased: leased, store.StateDead: dead}[state]
		if int64(len(page.Tasks)) != want {
			s.Fatalf("%d tasks are %v, want %d", len(page.Tasks), state, want)
		}
	}
}

func timeout(i int) store.NewTask {
	return store.NewTask{Queue: "timeouts", ID: fmt.Sprint("order ", i), Payload: []byte("'\\\x00\xff\"é"), Headers: map[string]string{"a": "b"}, Delay: 30 * time.Minute}
}

func TestTaskExistsIfAndOnlyIfTheOrderDoes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i, commit := range []bool{true, false} {
		tx := s.begin()
		if _, err := tx.Exec("INSERT INTO orders VALUES (?, 'ordered')", i); err != nil {
			t.Fatal(err)
		}
		r, err := s.ScheduleTx(s.ctx, tx, []store.NewTask{timeout(i)})
		s.must(err)
		if r[0].Outcome != store.Created || !r[0].Due.Equal(s.clock.Now().Add(30*time.Minute)) {
			t.Fatalf("%+v", r[0])
		}
		s.counts(int64(i), 0, 0, 0) // nobody sees it before the commit
		if commit {
			s.must(tx.Commit())
		} else {
			s.must(tx.Rollback())
		}
		s.counts(1, 0, 0, 0)
		if s.orders() != 1 {
			t.Fatalf("%d orders", s.orders())
		}
	}
	s.clock.Advance(30*time.Minute - time.Millisecond)
	if got := s.claim(); len(got) != 0 {
		t.Fatalf("early: %v", got)
	}
	s.clock.Advance(time.Millisecond)
	got := s.claim()
	if len(got) != 1 || got[0].ID != "order 0" || string(got[0].Payload) != string(timeout(0).Payload) || got[0].Headers["a"] != "b" {
		t.Fatalf("claimed %+v", got)
	}

	// The handler's effect and the end of the task are one as well.
	for _, commit := range []bool{false, true} {
		tx := s.begin()
		if _, err := tx.Exec("UPDATE orders SET state = 'cancelled' WHERE number = 0"); err != nil {
			t.Fatal(err)
		}
		r, err := s.AckTx(s.ctx, tx, []store.Receipt{got[0].Receipt, "nonsense"})
		s.must(err)
		if r[0].Outcome != store.Acked || r[1].Outcome != store.Refused {
			t.Fatalf("ack: %+v", r)
		}
		if commit {
			s.must(tx.Commit())
			s.counts(0, 0, 0, 0)
		} else {
			s.must(tx.Rollback())
			s.counts(0, 0, 1, 0)
		}
	}
	tx := s.begin()
	r, err := s.AckTx(s.ctx, tx, []store.Receipt{got[0].Receipt})
	s.must(err)
	if r[0].Outcome != store.Stale {
		t.Fatalf("ack again: %v", r[0].Outcome)
	}
}

func TestCancelInATransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i := range 4 {
		n := timeout(i)
		n.Delay, n.Due = 0, s.clock.Now().Add(-time.Duration(10-i)*time.Minute)
		_, err := s.Schedule(s.ctx, []store.NewTask{n})
		s.must(err)
	}
	cancel := func(tx *sql.Tx, i int, force bool) store.Outcome {
		t.Helper()
		r, err := s.CancelTx(s.ctx, tx, []store.CancelRequest{{Queue: "timeouts", ID: fmt.Sprint("order ", i), Force: force}})
		s.must(err)
		return r[0].Outcome
	}
	tx := s.begin()
	if o := cancel(tx, 0, false); o != store.Cancelled {
		t.Fatal(o)
	}
	if o := cancel(tx, 0, false); o != store.NotFound {
		t.Fatal(o)
	}
	// While the transaction is open the task is not handed out, and holds nobody up.
	got := s.claim()
	if len(got) != 3 || got[0].ID != "order 1" {
		t.Fatalf("claimed %d, the first %v", len(got), got)
	}
	s.must(tx.Rollback())
	again := s.claim()
	if len(again) != 1 || again[0].ID != "order 0" {
		t.Fatalf("after the rollback: claimed %v", again)
	}
	tx = s.begin()
	if o := cancel(tx, 1, false); o != store.Leased {
		t.Fatal(o)
	}
	if o := cancel(tx, 1, true); o != store.Cancelled {
		t.Fatal(o)
	}
	if o := cancel(tx, 99, true); o != store.NotFound {
		t.Fatal(o)
	}
	s.must(tx.Commit())
	s.counts(0, 0, 3, 0)
	s.clock.Advance(time.Minute) // the leases are over
	tx = s.begin()
	if o := cancel(tx, 2, false); o != store.Cancelled {
		t.Fatal(o)
	}
	s.must(tx.Commit())
	s.counts(0, 2, 0, 0)
}

func TestScheduleAgainInATransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	tx := s.begin()
	big := timeout(1)
	big.Payload = make([]byte, 100_000)
	replace := big
	replace.Conflict = store.ConflictReplace
	wrong := timeout(2)
	wrong.Delay = -1
	far := timeout(3)
	far.Queue = "other"
	r, err := s.ScheduleTx(s.ctx, tx, []store.NewTask{timeout(1), timeout(1), replace, wrong, far, big})
	s.must(err)
	for i, want := range []store.Outcome{store.Created, store.Exists, store.Replaced, store.Refused, store.Created, store.Exists} {
		if r[i].Outcome != want {
			t.Errorf("item %d: %v (%v), want %v", i, r[i].Outcome, r[i].Err, want)
		}
	}
	if string(r[1].Task.Payload) != string(timeout(1).Payload) || len(r[5].Task.Payload) != 100_000 || r[5].Task.Generation != 1 {
		t.Errorf("shown: %q, %d bytes", r[1].Task.Payload, len(r[5].Task.Payload))
	}
	s.must(tx.Commit())
	s.counts(1, 0, 0, 0)
	// A dead one and one whose lease is over.
	s.clock.Advance(time.Hour)
	l := s.claim()[0]
	s.clock.Advance(time.Hour)
	tx = s.begin()
	r, err = s.ScheduleTx(s.ctx, tx, []store.NewTask{timeout(1)})
	s.must(err)
	if r[0].Outcome != store.Exists || r[0].Task.State != store.StateReady || r[0].Task.Lost != 1 {
		t.Errorf("over: %+v", r[0])
	}
	s.must(tx.Rollback())
	l = s.claim()[0]
	if _, err := s.Settle(s.ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Bury}}); err != nil {
		t.Fatal(err)
	}
	tx = s.begin()
	r, err = s.ScheduleTx(s.ctx, tx, []store.NewTask{timeout(1)})
	s.must(err)
	if r[0].Outcome != store.Created {
		t.Errorf("dead: %+v", r[0])
	}
	s.must(tx.Commit())
	s.counts(1, 0, 0, 0)
}

// A transaction may stay open while Stats counts on, and many of them leave rows in
// the tally that are folded.
func TestCountersWithTransactions(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	early := s.begin() // its clock is that of its call
	n := timeout(1000)
	n.Delay = time.Second
	_, err := s.ScheduleTx(s.ctx, early, []store.NewTask{n})
	s.must(err)
	var tasks []store.NewTask
	for i := range 2000 {
		n := timeout(i)
		n.Queue, n.Delay = "timeouts", time.Duration(i)*time.Millisecond
		if i != 1000 {
			tasks = append(tasks, n)
		}
	}
	_, err = s.Schedule(s.ctx, tasks)
	s.must(err)
	s.clock.Advance(1500 * time.Millisecond)
	st, err := s.Stats(s.ctx, "timeouts") // moves the mark beyond the open one's task
	s.must(err)
	if st.Ready != 1500 || st.Scheduled != 499 {
		t.Fatalf("%+v", st)
	}
	s.must(early.Commit())
	st, err = s.Stats(s.ctx, "timeouts")
	s.must(err)
	if st.Ready != 1501 || st.Scheduled != 499 {
		t.Fatalf("after the commit: %+v", st)
	}
	for i := range 100 {
		tx := s.begin()
		_, err := s.CancelTx(s.ctx, tx, []store.CancelRequest{{Queue: "timeouts", ID: fmt.Sprint("order ", i*20)}})
		s.must(err)
		s.must(tx.Commit())
	}
	st, err = s.Stats(s.ctx, "timeouts")
	s.must(err)
	if st.Ready != 1501-76 || st.Scheduled != 499-24 {
		t.Fatalf("after cancels: %+v", st)
	}
	rows := func() (n int) {
		s.must(s.Store.db.QueryRow("SELECT COUNT(*) FROM duetime_tally").Scan(&n))
		return n
	}
	before := rows()
	time.Sleep(resetEvery)
	if got := s.claim(); len(got) != 100 {
		t.Fatalf("claimed %d", len(got))
	}
	if after := rows(); before < shards+100 || after != shards {
		t.Errorf("%d rows in the tally, %d after a claim; want %d", before, after, shards)
	}
	st, err = s.Stats(s.ctx, "timeouts")
	s.must(err)
	if st.Ready != 1501-76-100 || st.Scheduled != 499-24 || st.Leased != 100 {
		t.Fatalf("after folding: %+v", st)
	}
}

func TestTransactionOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	s, other := newShop(t), newShop(t)
	// Names are qualified: what database the transaction uses does not matter.
	tx := other.begin()
	_, err := s.ScheduleTx(s.ctx, tx, []store.NewTask{timeout(1)})
	s.must(err)
	s.must(tx.Commit())
	s.counts(1, 0, 0, 0)
	// On another server there are no such tables, or another's.
	execute(t, other.db, "UPDATE "+s.database+".duetime_meta SET value = 'x' WHERE name = 'store'")
	tx = other.begin()
	if _, err := s.ScheduleTx(s.ctx, tx, []store.NewTask{timeout(2)}); !errors.Is(err, ErrOtherDatabase) {
		t.Errorf("error %v, want ErrOtherDatabase", err)
	}
}

// A worker that sleeps is woken soon after the commit.
func TestWokenAfterACommit(t *testing.T) {
	t.Parallel()
	url := database(t)
	s := open(t, url, nil)
	name, err := DataSource(url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", name)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	ticks, stop := s.Wake("timeouts")
	defer stop()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	n := timeout(1)
	n.Delay = 0
	if _, err := s.ScheduleTx(ctx, tx, []store.NewTask{n}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ticks:
		t.Fatal("a tick before the commit")
	case <-time.After(100 * time.Millisecond):
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	select {
	case <-ticks:
		t.Logf("woken %v after the commit", time.Since(start))
	case <-time.After(5 * time.Second):
		t.Fatal("not woken")
	}
}
