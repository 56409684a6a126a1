package mysqlsource

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/takeovertest"
	"github.com/duetime/duetime/store"
)

func withDelete(o Options) Options { o.Delete = true; return o }

func withSet(o Options) Options { o.Set = "status = 9"; return o }

func TestTakeOver(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{"kept": options(), "deleted": withDelete(options()), "set": withSet(options())} {
		w := newWorld(t)
		w.table()
		w.fill()
		w.exec("INSERT INTO orders (id, at, payload, status) VALUES ('not ours', 5, 'x', 1)")
		var done, total int64
		r, err := takeover.Run(w.ctx, w.source(opts), w.dest, takeover.Options{Queue: queue, Progress: func(d, n int64) { done, total = d, n }})
		w.must(err)
		if r.Moved != 19 || r.Left != 0 || r.Staged || r.Interrupted || done != 19 || total != 19 {
			t.Errorf("%s: report %+v, progress %d of %d", name, r, done, total)
		}
		want := map[string][2]int64{"kept": {20, 19}, "deleted": {1, 0}, "set": {20, 0}}[name]
		if got := w.number("SELECT COUNT(*) FROM orders"); got != want[0] {
			t.Errorf("%s: %d rows in the table, want %d", name, got, want[0])
		}
		if got := w.number("SELECT COUNT(*) FROM orders WHERE status = 0"); got != want[1] {
			t.Errorf("%s: %d rows wait in the table, want %d", name, got, want[1])
		}
		if name == "kept" {
			if r := w.run(opts); r.Moved != 0 || r.Left != 0 {
				t.Errorf("again: report %+v", r)
			}
			w.exec("DROP TABLE duetime_import_orders")
		}
		w.check()
	}
}

// TestDiesAnywhere ends the process at every step, before and after it, while the
// old system's consumers and the new one's worker are at work, and goes on.
func TestDiesAnywhere(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{"deleted": withDelete(options()), "set": withSet(options())} {
		for _, before := range []bool{true, false} {
			if (name == "set") == before && os.Getenv("DUETIME_LONG") == "" {
				continue // the steps are the same but for one statement
			}
			for n := 1; ; n++ {
				w := newWorld(t)
				w.table()
				w.fill()
				added := 0
				do := func(step int) {
					w.dest.Work()
					if step%2 == 0 {
						w.pop()
					}
					if step%3 == 0 && step < 20 {
						added++
						w.add(fmt.Sprint("new", added), w.dest.Clock.Now().Truncate(time.Millisecond).Add(time.Duration(step-8)*time.Second))
					}
				}
				_, killed := w.runDying(opts, n, before, do)
				w.dest.Work()
				w.pop()
				w.runDying(opts, 1+n%11, !before, do)
				w.pop()
				w.runDying(opts, 0, false, nil)
				w.check()
				if t.Failed() {
					t.Fatalf("%s: killed at step %d, before it: %v", name, n, before)
				}
				if !killed {
					if n < 14 {
						t.Errorf("not killed at step %d", n)
					}
					break
				}
			}
		}
	}
}

// TestKeep: the rows stay, and what was copied is not copied again, even where it has
// run; what changes while it is copied is copied as it is then, or not at all.
func TestKeep(t *testing.T) {
	t.Parallel()
	opts := options()
	step := 2
	if os.Getenv("DUETIME_LONG") != "" {
		step = 1
	}
	for n := 1; ; n += step {
		w := newWorld(t)
		w.table()
		w.fill()
		work := func(step int) {
			w.dest.Work()
			switch step {
			case 5: // between the first rows being taken and being in the store
				w.exec("UPDATE orders SET status = 1 WHERE id = 'A'")
				w.exec("UPDATE orders SET at = at + 1000, payload = 'new' WHERE id = 'a'")
				w.want["a"] = takeovertest.Entry{Due: w.want["a"].Due.Add(time.Second), Payload: "new"}
				delete(w.want, "A")
			}
		}
		_, killed := w.runDying(opts, n, n%3 == 0, work)
		if n < 6 {
			work(5)
		}
		w.runDying(opts, 1+n%11, n%2 == 0, func(int) { w.dest.Work() })
		for range 2 {
			w.runDying(opts, 0, false, func(int) { w.dest.Work() })
		}
		if got := w.number("SELECT COUNT(*) FROM duetime_import_orders WHERE id <> '' AND phase = 2"); got != 18 {
			t.Errorf("%d rows noted, want all 18", got)
		}
		w.add("later", w.dest.Clock.Now().Truncate(time.Millisecond))
		w.runDying(opts, 0, false, func(int) { w.dest.Work() })
		w.exec("DROP TABLE duetime_import_orders")
		w.check()
		if t.Failed() {
			t.Fatalf("killed at step %d", n)
		}
		if !killed {
			break
		}
	}
}

// TestBadRows: what can not become a task stays where it is, is named, and holds
// nothing up.
func TestBadRows(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{options(), withDelete(options())} {
		w := newWorld(t)
		w.exec("CREATE TABLE orders (id VARBINARY(300) UNIQUE, at BIGINT, payload LONGBLOB, status INT NOT NULL DEFAULT 0) ENGINE=InnoDB ROW_FORMAT=DYNAMIC")
		w.fill()
		now := w.dest.Clock.Now().UnixMilli()
		bad := 0
		add := func(id, at, payload any) {
			bad++
			w.exec("INSERT INTO orders (id, at, payload) VALUES (?, ?, ?)", id, at, payload)
		}
		w.exec("INSERT INTO orders (id, at, payload) SELECT CONCAT('bad', CHAR(1), n), 5, 'x' FROM (WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s) s")
		bad += 900 // more than a slice
		add(strings.Repeat("x", 256), now, "x")
		add("no UTF-8 \xff", now, "x")
		add("", now, "x")
		add(nil, now, "x")
		add(nil, now, "x")
		add("seconds", now/1000, "x")
		add("micros", now*1000, "x")
		add("negative", -5, "x")
		add("no time", nil, "x")
		add("too long", now, strings.Repeat("x", 1001))
		opts.MaxPayload = 1000
		for i := range 2 {
			r := w.run(opts)
			if r.Left != int64(bad) || len(r.FirstLeft) != 10 || r.Moved != int64(19*(1-i)) {
				t.Errorf("report %+v, want %d left", r, bad)
			}
			for _, l := range r.FirstLeft {
				if l.Why == "" {
					t.Errorf("left: %q", l)
				}
			}
		}
		if n := w.number("SELECT COUNT(*) FROM orders"); n != int64(bad) && n != int64(bad+19) {
			t.Errorf("%d rows, %d of them bad", n, bad)
		}
		w.exec("DROP TABLE IF EXISTS duetime_import_orders")
		w.check()
	}
}

func TestIDInUse(t *testing.T) {
	t.Parallel()
	for _, replace := range []bool{false, true} {
		w := newWorld(t)
		w.table()
		w.fill()
		_, err := w.dest.Schedule(w.ctx, []store.NewTask{{Queue: queue, ID: "past3", Delay: time.Hour, Payload: []byte("theirs")}})
		w.must(err)
		s := w.source(withDelete(options()))
		r, err := takeover.Run(w.ctx, s, w.dest, takeover.Options{Queue: queue, Replace: replace})
		w.must(err)
		w.must(s.Close())
		if replace {
			if r.Left != 0 || r.Moved != 19 {
				t.Errorf("report %+v", r)
			}
			w.check()
			continue
		}
		if r.Left != 1 || r.Moved != 18 || r.FirstLeft[0].ID != "past3" || !strings.Contains(r.FirstLeft[0].Why, "in use") {
			t.Errorf("report %+v", r)
		}
		if n := w.number("SELECT COUNT(*) FROM orders WHERE id = 'past3'"); n != 1 {
			t.Error("the row whose id is in use is gone")
		}
		_, err = w.dest.Cancel(w.ctx, []store.CancelRequest{{Queue: queue, ID: "past3"}})
		w.must(err)
		w.run(withDelete(options())) // now it goes
		w.check()
	}
}

// TestFollow: rows that come while it goes on, among them bad ones, which are named
// once, and counted at the end.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{options(), withDelete(options())} {
		w := newWorld(t)
		w.table()
		w.fill()
		ctx, stop := context.WithCancel(w.ctx)
		defer stop()
		n, quiet := 0, 0
		var stays []takeover.Left
		d := &takeovertest.Dying{Source: w.source(opts), Do: func(int) {
			if n < 40 {
				w.add(fmt.Sprint("new", n), w.dest.Clock.Now().Truncate(time.Millisecond).Add(time.Duration(n-20)*time.Second))
				n++
				if n%20 == 0 {
					w.exec("INSERT INTO orders (id, at) VALUES (?, 5)", fmt.Sprint("bad", n))
				}
			} else if quiet++; quiet > 30 {
				stop()
			}
			w.dest.Work()
		}}
		r, err := takeover.Run(ctx, d, w.dest, takeover.Options{Queue: queue, Follow: true, Replace: true, Poll: time.Millisecond, Stays: func(l takeover.Left) { stays = append(stays, l) }})
		w.must(err)
		if r.Left != 2 || r.Moved != 59 || r.Staged || len(stays) != 2 {
			t.Errorf("report %+v, told of %v", r, stays)
		}
		w.exec("DROP TABLE IF EXISTS duetime_import_orders")
		w.check()
	}
}

// TestLock: a second import waits for the first, says so, and gives up; a connection
// that is gone has left the lock.
func TestLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.table()
	w.fill()
	opts := withDelete(options())
	first := w.source(opts)
	hold := time.Date(9999, 2, 1, 0, 0, 0, 0, time.UTC)
	_, err := first.Begin(w.ctx, hold)
	w.must(err)
	entries, _, err := first.Take(w.ctx)
	w.must(err)
	var waits int64
	opts.Patience, opts.Waiting = 50*time.Millisecond, func(n int64) { waits = n }
	second := w.source(opts)
	if _, err := second.Begin(w.ctx, hold); err == nil || !strings.Contains(err.Error(), fmt.Sprint("KILL ", first.token)) || waits != first.token {
		t.Errorf("a second import: %v", err)
	}
	w.exec(fmt.Sprint("KILL ", first.token))
	opts.Patience = 5 * time.Second
	second = w.source(opts)
	got, err := second.Begin(w.ctx, hold.Add(time.Hour))
	w.must(err)
	if !got.Equal(hold) {
		t.Errorf("the second goes on with hold %v, want the first's", got)
	}
	for name, do := range map[string]func() error{
		"take":    func() error { first.Rewind(); _, _, err := first.Take(w.ctx); return err },
		"stored":  func() error { _, err := first.Stored(w.ctx, entries); return err },
		"putback": func() error { return first.PutBack(w.ctx, entries) },
		"done":    func() error { return first.Done(w.ctx, entries) },
	} {
		if err := do(); err == nil {
			t.Errorf("%s without the lock is done", name)
		}
	}
	w.must(second.End(w.ctx))
	w.must(second.Close())
	other := opts
	other.Where = "status = 0 AND at > 0"
	if _, err := takeover.Run(w.ctx, w.source(other), w.dest, takeover.Options{Queue: queue}); err == nil || !strings.Contains(err.Error(), "broken off") {
		t.Errorf("an import with other flags: %v", err)
	}
	w.run(opts)
	w.check()
}

// Two queues out of one table, from which rows are copied, do not get in each other's
// way.
func TestTwoQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.table()
	w.fill()
	for _, q := range []string{"remind", "cancel"} {
		opts := options()
		opts.Queue = q
		s := w.source(opts)
		r, err := takeover.Run(w.ctx, s, w.dest, takeover.Options{Queue: q})
		w.must(err)
		w.must(s.Close())
		if r.Moved != 19 {
			t.Errorf("%s: %+v", q, r)
		}
	}
}

// A row that still matches after --set would be taken for ever.
func TestSetThatChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.table()
	w.fill()
	for set, want := range map[string]string{"at = at + 1": "exclude the other", "status = 0": "changes nothing", "status = status": "change nothing"} {
		opts := options()
		opts.Set = set
		s := w.source(opts)
		_, err := takeover.Run(w.ctx, s, w.dest, takeover.Options{Queue: queue})
		w.must(s.Close())
		if err == nil || !strings.Contains(err.Error(), "exclude the other") && !strings.Contains(err.Error(), "change nothing") {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
		// Nothing has been begun that would have to be finished.
		if n := w.number("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'duetime%'"); n != 0 {
			t.Errorf("%s: %d tables are left", set, n)
		}
		stats, err := w.dest.Stats(w.ctx, queue)
		w.must(err)
		if stats.Scheduled+stats.Ready != 0 {
			t.Errorf("%s: %d tasks are staged", set, stats.Scheduled+stats.Ready)
		}
	}
	if n := w.number("SELECT COUNT(*) FROM orders WHERE status = 0"); n != 19 {
		t.Errorf("%d rows wait, want all 19", n)
	}
}

// One row may be a good rehearsal for --set, and another show that it is wrong. The
// same import goes on with a right one, and with no other flag.
func TestSetIsPutRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.table()
	w.fill()
	opts := options()
	opts.Set = "status = IF(n = (SELECT * FROM (SELECT MIN(n) FROM orders) AS o), 1, 0), at = at + 1"
	if first := w.number("SELECT n FROM orders WHERE status = 0 LIMIT 1"); first != w.number("SELECT MIN(n) FROM orders") {
		opts.Set = fmt.Sprintf("status = IF(n = %d, 1, 0), at = at + 1", first)
	}
	fail := func(want string) {
		t.Helper()
		s := w.source(opts)
		_, err := takeover.Run(w.ctx, s, w.dest, takeover.Options{Queue: queue})
		w.must(s.Close())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
	}
	fail("with another --set")
	if stats, err := w.dest.Stats(w.ctx, queue); err != nil || stats.Scheduled == 0 {
		t.Fatalf("%+v, %v: nothing was staged, so this shows nothing", stats, err)
	}
	fail("with another --set")
	wrong := opts.Set
	opts.Delete, opts.Set = true, ""
	fail("with other flags")
	opts.Delete, opts.Set, opts.Where = false, "status = 1", "status IN (0, 2)"
	fail("with other flags")
	opts.Where, opts.Set = "status = 0", wrong
	fail("with another --set")
	opts.Set = "status = 1"
	if r := w.run(opts); r.Left != 0 {
		t.Errorf("report %+v", r)
	}
	w.check()
}
