package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// claimAll claims until so many were had, and acks them.
func claimAll(t testing.TB, s *Store, n int) (got []store.Lease) {
	t.Helper()
	ctx := context.Background()
	for end := time.Now().Add(60 * time.Second); len(got) < n; {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 100, Lease: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r[0].Tasks {
			if l.ClaimedAt.Before(l.Due) {
				t.Errorf("%s is early: due %v, claimed %v", l.ID, l.Due, l.ClaimedAt)
			}
			if a, err := s.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}}); err != nil || a[0].Outcome != store.Acked {
				t.Fatalf("ack: %v, %v", a, err)
			}
		}
		got = append(got, r[0].Tasks...)
		if len(r[0].Tasks) == 0 {
			if time.Now().After(end) {
				t.Fatalf("got %d of %d", len(got), n)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return got
}

// The server's time zone is changed between schedule and due, and a delay is a delay.
func TestTimeZonesDoNotMatter(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := admin(t, serverForAll(t), "")
	ctx := t.Context()
	for i, zone := range []string{"-05:00", "+05:45", "+09:00"} {
		before := open(t, url, nil)
		sent := time.Now()
		r, err := before.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: fmt.Sprint(i), Delay: 300 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		if d := r[0].Due.Sub(sent); d < 290*time.Millisecond || d > 10*time.Second {
			t.Errorf("due after %v", d)
		}
		execute(t, db, "SET GLOBAL time_zone = '"+zone+"'")
		after := open(t, url, nil) // sessions of its own
		got := claimAll(t, after, 1)
		if late := got[0].ClaimedAt.Sub(got[0].Due); late < 0 || late > 5*time.Second {
			t.Errorf("late by %v", late)
		}
	}
}

// What somebody's hand may do to rows: nothing is stuck, and nothing blocks the rest.
func TestDamagedRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, database(t), nil)
	fill(t, s, 100, time.Now().Add(-time.Hour))
	r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 10, Lease: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	change := func(id, set string) {
		t.Helper()
		execute(t, s.db, withTables("UPDATE {task} SET "+set+" WHERE id = '"+id+"'", s.database))
	}
	// A lease without an end can not be stored; one without a holder, or with an end
	// that is nonsense, is over as any other.
	if _, err := s.db.Exec(withTables("UPDATE {task} SET at = NULL WHERE id = '"+r[0].Tasks[0].ID+"'", s.database)); err == nil {
		t.Error("a lease without an end could be stored")
	}
	change(r[0].Tasks[1].ID, "at = 0")
	change(r[0].Tasks[2].ID, "at = -5")
	change(r[0].Tasks[3].ID, "token = 0, at = 1")
	// Tasks that are broken otherwise.
	change("order-000000050", "headers = 'no JSON'")
	change("order-000000051", "big = 1, large = NULL")
	change("order-000000052", "big = 1, large = 'nonsense'")
	change("order-000000053", "state = 7")
	s.queues.named("orders").audited = time.Time{} // five minutes have passed
	// 90 are left, one in a state that there is not, and three come back.
	seen := make(map[string]bool)
	for _, l := range claimAll(t, s, 92) {
		seen[l.ID] = true
	}
	for i := 1; i <= 3; i++ {
		// Their marks were set by hand, behind the place where leases are looked for.
		if id := r[0].Tasks[i].ID; !seen[id] {
			t.Errorf("%s was not handed out again", id)
		}
	}
	for _, id := range []string{"order-000000050", "order-000000051", "order-000000052", "order-000000099"} {
		if !seen[id] {
			t.Errorf("%s was not handed out", id)
		}
	}
	// The one in no state can be put right by who schedules it.
	if g, err := s.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: "order-000000053"}}); err != nil || g[0].Outcome == store.Refused {
		t.Errorf("schedule: %v, %v", g, err)
	}
}

// The table is locked while a hundred tasks become due: all run, late.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := database(t)
	s := open(t, url, nil)
	var tasks []store.NewTask
	for i := range 100 {
		tasks = append(tasks, store.NewTask{Queue: "orders", ID: fmt.Sprint(i), Delay: time.Duration(i*10) * time.Millisecond})
	}
	if _, err := s.Schedule(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	conn, err := admin(t, serverForAll(t), s.database).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "LOCK TABLES duetime_task WRITE"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2500*time.Millisecond, func() { _, _ = conn.ExecContext(context.Background(), "UNLOCK TABLES") })
	start := time.Now()
	claimAll(t, s, 100)
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("the table was not locked: all ran within %v", took)
	}
	recount(t, s)
}

// A process that hangs in the middle of a claim has the queue's turn. The others wait
// for it once, and then do without.
func TestHangingClaimer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, database(t), nil)
	fill(t, s, 100, time.Now().Add(-time.Hour))
	conn, err := s.db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "START TRANSACTION; SELECT * FROM duetime_turn FOR UPDATE; SELECT * FROM duetime_task WHERE seq <= 10 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	claim := func() []store.Lease {
		t.Helper()
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 5, Lease: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		return r[0].Tasks
	}
	if got := claim(); len(got) != 5 || got[0].ID != "order-000000010" {
		t.Fatalf("claimed %v", got)
	}
	if took := time.Since(start); took < time.Second || took > 20*time.Second {
		t.Errorf("the first claim took %v", took)
	}
	start = time.Now()
	for range 10 {
		if got := claim(); len(got) != 5 {
			t.Fatalf("claimed %v", got)
		}
	}
	if took := time.Since(start); took > 2*time.Second*9 {
		t.Errorf("ten more claims took %v", took)
	}
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // the leases are over
	if got := claimAll(t, s, 100); len(got) != 100 {
		t.Errorf("%d", len(got))
	}
	recount(t, s)
}

// What another process schedules earlier is noticed.
func TestOtherProcessesAreNoticed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := database(t)
	a, b := open(t, url, nil), open(t, url, nil)
	ticks, stop := a.Wake("orders")
	defer stop()
	if _, err := a.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: "far", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	<-ticks
	tick := func(what string) {
		t.Helper()
		start := time.Now()
		select {
		case <-ticks:
			t.Logf("%s: noticed after %v", what, time.Since(start))
		case <-time.After(5 * time.Second):
			t.Errorf("%s: not noticed", what)
		}
	}
	if _, err := b.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: "near", Delay: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	tick("a task that is due earlier")
	settings, err := b.Settings(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * lookOften)
	settings.Paused = true
	if _, err := b.PutSettings(ctx, "orders", settings); err != nil {
		t.Fatal(err)
	}
	tick("settings")
}

// A server without room says so for the tasks that did not fit, and nothing is done by
// half.
func TestFullServer(t *testing.T) {
	t.Parallel()
	testserver.NeedMariaDB(t)
	m := testserver.MariaDB(t, &testserver.MariaDBOptions{Config: []string{
		"--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:64M",
	}})
	ctx := t.Context()
	s := open(t, "mysql://root@"+m.Addr+"/"+m.Database, nil)
	stored := 0
	full := false
	for i := 0; i < 2000 && !full; i++ {
		tasks := make([]store.NewTask, 5)
		for k := range tasks {
			tasks[k] = store.NewTask{Queue: "orders", ID: fmt.Sprint(i, "/", k), Payload: make([]byte, 100_000)}
		}
		r, err := s.Schedule(ctx, tasks)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r {
			switch {
			case x.Outcome == store.Created:
				stored++
			case errors.Is(x.Err, store.ErrFull):
				full = true
			default:
				t.Fatalf("%v, %v", x.Outcome, x.Err)
			}
		}
	}
	if !full {
		t.Fatalf("%d tasks of 100 kB are in 64 MB", stored)
	}
	st, err := s.Stats(ctx, "orders")
	if err != nil || st.Ready != int64(stored) {
		t.Errorf("%+v, %v; want %d ready", st, err, stored)
	}
	// What else is asked for works, or says why not; nothing is done by half.
	if _, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 20, Lease: time.Millisecond}}); err != nil && !errors.Is(err, store.ErrFull) {
		t.Errorf("claim: %v", err)
	}
	if page, err := s.List(ctx, store.ListRequest{Queue: "orders", State: store.StateReady, Limit: 10, Payloads: true}); err != nil || len(page.Tasks) != 10 || len(page.Tasks[0].Payload) != 100_000 {
		t.Errorf("list: %d tasks, %v", len(page.Tasks), err)
	}
	recount(t, s)
}

// The clock goes back after Stats has counted on: what was ready is scheduled again, and
// the counters follow.
func TestCountersWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	base := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	var now atomic.Int64
	s := open(t, database(t), &Options{now: func() time.Time { return base.Add(time.Duration(now.Load())) }})
	var tasks []store.NewTask
	for i := range 2000 {
		tasks = append(tasks, store.NewTask{Queue: "orders", ID: fmt.Sprint(i), Due: base.Add(time.Duration(i+1) * time.Millisecond)})
	}
	if _, err := s.Schedule(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	gone := int64(0)
	for _, ms := range []int64{1500, 700, 1600, 100, 0, 2000} {
		now.Store(ms * int64(time.Millisecond))
		st, err := s.Stats(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if st.Ready != max(0, ms-gone) || st.Scheduled != 2000-max(ms, gone) {
			t.Errorf("at %d ms: %+v, with the first %d gone", ms, st, gone)
		}
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 50, AtMostOnce: true}})
		if err != nil {
			t.Fatal(err)
		}
		gone += int64(len(r[0].Tasks))
	}
	recount(t, s)
}
