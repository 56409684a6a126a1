package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/takeovertest"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

func TestTakeOver(t *testing.T) {
	w := newWorld(t, single(t))
	w.fill()
	var done, total int64
	r, err := takeover.Run(w.ctx, w.source(options()), w.dest, takeover.Options{Queue: queue, Progress: func(d, n int64) { done, total = d, n }})
	w.must(err)
	if r.Moved != 19 || r.Left != 0 || r.Staged || r.Interrupted || done != 19 || total != 19 {
		t.Errorf("report %+v, progress %d of %d", r, done, total)
	}
	w.dest.Work()
	if want := []string{"same0", "same1", "same2", "same3", "same4", "same5", "past5", "past4", "past3", "past2", "past1", "past0"}; !slices.Equal(w.dest.Order, want) {
		t.Errorf("ran in the order %v, want %v", w.dest.Order, want)
	}
	w.check()
}

// TestDiesAnywhere ends the process at every step, before and after it, while the
// old system's consumers and the new one's worker are at work, and goes on.
func TestDiesAnywhere(t *testing.T) {
	client := single(t)
	for _, fresh := range []bool{true, false} { // with and without old consumers
		for _, before := range []bool{true, false} {
			for n := 1; ; n++ {
				w := newWorld(t, client)
				w.fill()
				do := func(step int) {
					w.dest.Work()
					if !fresh && step%2 == 0 {
						w.pop()
					}
					if step%3 == 0 && step < 20 {
						w.add(fmt.Sprint("new", step), w.dest.Clock.Now().Add(time.Duration(step-8)*time.Second))
					}
				}
				steps, killed := w.runDying(options(), takeover.Options{}, n, before, do)
				w.dest.Work()
				// Another end while it goes on.
				w.runDying(options(), takeover.Options{}, 1+n%11, !before, func(int) { w.dest.Work() })
				w.runDying(options(), takeover.Options{}, 0, false, nil)
				w.check()
				if t.Failed() {
					t.Fatalf("killed at step %d, before it: %v", n, before)
				}
				if !killed {
					if n < 14 || steps > n {
						t.Errorf("not killed at step %d of %d", n, steps)
					}
					break
				}
			}
		}
	}
}

// TestKeep: the source stays, the old consumers go on, and what was copied is not
// copied again, even where it has run.
func TestKeep(t *testing.T) {
	client := single(t)
	opts := options()
	opts.Keep = true
	for n := 1; ; n++ {
		w := newWorld(t, client)
		w.fill()
		work := func(int) { w.dest.Work() }
		_, killed := w.runDying(opts, takeover.Options{}, n, coin(), work)
		w.runDying(opts, takeover.Options{}, 1+n%11, coin(), work)
		for range 2 {
			w.runDying(opts, takeover.Options{}, 0, false, work)
		}
		if got := w.number("ZCARD", zset); got != 19 {
			t.Fatalf("%d entries in the source, want all 19", got)
		}
		if got := w.number("HLEN", ImportedKey(zset)); got != 19 {
			t.Fatalf("%d entries noted, want all 19", got)
		}
		w.add("later", w.dest.Clock.Now())
		w.runDying(opts, takeover.Options{}, 0, false, work)
		w.do("DEL", zset, hash, ImportedKey(zset))
		w.check()
		if t.Failed() {
			t.Fatalf("killed at step %d", n)
		}
		if !killed {
			break
		}
	}
}

// TestBadEntries: what can not become a task stays where it is, is named, and
// holds nothing up.
func TestBadEntries(t *testing.T) {
	client := single(t)
	for _, keep := range []bool{false, true} {
		w := newWorld(t, client)
		w.fill()
		opts := options()
		opts.MaxPayload, opts.Keep = 1000, keep
		now := fmt.Sprint(w.dest.Clock.Now().UnixMilli())
		bad := map[string]string{}
		for i := range 1200 { // more than two slices of them, before all others
			bad[fmt.Sprintf("bad\x01%d", i)] = "1772366400000"
		}
		bad[strings.Repeat("x", 256)] = now
		bad["no UTF-8 \xff"] = now
		bad[""] = now
		bad["infinite"] = "+inf"
		bad["seconds"] = "1772366400"
		bad["micros"] = "1772366400000000"
		bad["negative"] = "-5"
		for id, score := range bad {
			w.do("HSET", hash, id, "p")
			w.do("ZADD", zset, score, id)
		}
		bad["no field"], bad["too long"] = now, now
		w.do("ZADD", zset, now, "no field")
		w.do("ZADD", zset, now, "too long")
		w.do("HSET", hash, "too long", strings.Repeat("x", 1001))
		for range 2 {
			r := w.run(opts)
			if r.Left != int64(len(bad)) || len(r.FirstLeft) != 10 || r.Staged {
				t.Errorf("report %+v, want %d left", r, len(bad))
			}
			for _, l := range r.FirstLeft {
				if _, ok := bad[l.ID]; !ok || l.Why == "" {
					t.Errorf("left: %q", l)
				}
			}
		}
		for id, score := range bad {
			if m := w.do("ZSCORE", zset, id); m.IsNil() {
				t.Errorf("%q, %s is not in the source any more", id, score)
			}
			w.do("ZREM", zset, id)
			if id != "no field" && w.number("HDEL", hash, id) != 1 {
				t.Errorf("the payload of %q is gone", id)
			}
		}
		if keep {
			if n := w.number("ZCARD", zset); n != 19 {
				t.Errorf("%d good entries in the source that is kept, want 19", n)
			}
			w.do("DEL", zset, hash, ImportedKey(zset))
		}
		w.check()
	}
}

// TestFieldThatComesLater: a producer writes the set first and the hash a moment
// later.
func TestFieldThatComesLater(t *testing.T) {
	w := newWorld(t, single(t))
	ctx, stop := context.WithTimeout(w.ctx, 10*time.Second)
	defer stop()
	at := w.dest.Clock.Now()
	w.do("ZADD", zset, fmt.Sprint(at.UnixMilli()), "late")
	polls := 0
	d := &takeovertest.Dying{Source: w.source(options()), Do: func(int) {
		polls++
		if polls == 10 {
			w.add("late", at)
		}
		if polls > 10 && w.number("ZCARD", zset) == 0 && w.number("HLEN", w.source(options()).keys.staging) == 0 {
			stop()
		}
	}}
	r, err := takeover.Run(ctx, d, w.dest, takeover.Options{Queue: queue, Follow: true, Poll: time.Millisecond})
	w.must(err)
	if r.Moved != 1 || r.Left != 0 || r.Interrupted {
		t.Errorf("report %+v", r)
	}
	w.check()
}

// TestTwiceInOneScan: a scan may bring a member twice.
func TestTwiceInOneScan(t *testing.T) {
	client := single(t)
	for _, keep := range []bool{false, true} {
		w := newWorld(t, client)
		w.fill()
		opts := options()
		opts.Keep = keep
		s := w.source(opts)
		_, err := s.Begin(w.ctx, store.MaxTime)
		w.must(err)
		s.ahead = []string{"past0", "past1", "past0"}
		entries, _, err := s.Take(w.ctx)
		w.must(err)
		if len(entries) != 2 {
			t.Errorf("took %v", entries)
		}
		_, err = s.Stored(w.ctx, entries)
		w.must(err)
		w.must(s.Done(w.ctx, entries))
	}
}

func TestIDInUse(t *testing.T) {
	client := single(t)
	for _, replace := range []bool{false, true} {
		w := newWorld(t, client)
		w.fill()
		_, err := w.dest.Schedule(w.ctx, []store.NewTask{{Queue: queue, ID: "past3", Delay: time.Hour, Payload: []byte("theirs")}})
		w.must(err)
		r, err := takeover.Run(w.ctx, w.source(options()), w.dest, takeover.Options{Queue: queue, Replace: replace})
		w.must(err)
		if replace {
			if r.Left != 0 || r.Moved != 19 {
				t.Errorf("report %+v", r)
			}
			w.check()
			continue
		}
		if r.Left != 1 || r.Moved != 18 || len(r.FirstLeft) != 1 || r.FirstLeft[0].ID != "past3" || !strings.Contains(r.FirstLeft[0].Why, "in use") {
			t.Errorf("report %+v", r)
		}
		_, err = w.dest.Cancel(w.ctx, []store.CancelRequest{{Queue: queue, ID: "past3"}})
		w.must(err)
		w.run(options()) // now it goes
		w.check()
	}
}

func TestScoreIsTheTimeOfCreation(t *testing.T) {
	w := newWorld(t, single(t))
	w.do("ZADD", zset, "1772366400.25", "a")
	opts := options()
	opts.Hash, opts.Unit, opts.Created, opts.Delay = "", Seconds, true, 30*time.Minute
	if r := w.run(opts); r.Moved != 1 {
		t.Errorf("report %+v", r)
	}
	r, err := w.dest.Get(w.ctx, []store.Key{{Queue: queue, ID: "a"}})
	w.must(err)
	created := time.UnixMilli(1772366400250).UTC()
	if got := r[0].Task; got == nil || !got.Due.Equal(created.Add(30*time.Minute)) || !got.Created.Equal(created) || string(got.Payload) != "a" {
		t.Errorf("%+v", got)
	}
}

func TestScores(t *testing.T) {
	for _, c := range []struct {
		unit  Unit
		score string
		want  int64 // Unix milliseconds; 0: refused
	}{
		{Seconds, "1700000000", 1700000000000},
		{Seconds, "1700000000.1", 1700000000100},
		{Seconds, "1700000000.1234", 1700000000124},
		{Seconds, "1.7e9", 1700000000000},
		{Milliseconds, "1700000000000", 1700000000000},
		{Milliseconds, "1700000000000.5", 1700000000001},
		{Milliseconds, "1.7e+12", 1700000000000},
		{Milliseconds, "253402300799999", 253402300799999},
		{Milliseconds, "253402300800000", 0},
		{Milliseconds, "1700000000", 0}, // seconds
		{Seconds, "1700000000000", 0},   // milliseconds
		{Milliseconds, "1700000000000000", 0},
		{Seconds, "0", 0},
		{Seconds, "-1", 0},
		{Seconds, "inf", 0},
		{Seconds, "-inf", 0},
		{Seconds, "nan", 0},
		{Seconds, "1e300", 0},
		{Seconds, "", 0},
	} {
		got, err := c.unit.Instant("score", c.score)
		if (err != nil) != (c.want == 0) || err == nil && got.UnixMilli() != c.want {
			t.Errorf("%s in %s: %v, %v; want %d", c.score, c.unit, got, err, c.want)
		}
	}
}

// TestLock: a second import waits for the first, and one that was taken for dead
// changes nothing any more.
func TestLock(t *testing.T) {
	w := newWorld(t, single(t))
	w.fill()
	opts := options()
	opts.LockTime, opts.slice = 300*time.Millisecond, 100
	first, second := w.source(opts), w.source(opts)
	hold := time.Date(9999, 2, 1, 0, 0, 0, 0, time.UTC)
	_, err := first.Begin(w.ctx, hold)
	w.must(err)
	entries, _, err := first.Take(w.ctx)
	w.must(err)
	if len(entries) != 19 {
		t.Fatalf("took %d", len(entries))
	}
	start := time.Now()
	got, err := second.Begin(w.ctx, hold.Add(time.Hour))
	w.must(err)
	if took := time.Since(start); took < 150*time.Millisecond || !got.Equal(hold) {
		t.Errorf("the second began after %v with hold %v, want the first's", took, got)
	}
	for name, do := range map[string]func() error{
		"take": func() error {
			first.Rewind()
			w.add("x", w.dest.Clock.Now())
			_, _, err := first.Take(w.ctx)
			return err
		},
		"stored":  func() error { _, err := first.Stored(w.ctx, entries); return err },
		"putback": func() error { return first.PutBack(w.ctx, entries) },
		"done":    func() error { return first.Done(w.ctx, entries) },
	} {
		before := w.number("HLEN", first.keys.staging)
		if err := do(); err == nil || !strings.Contains(err.Error(), "lock") {
			t.Errorf("%s without the lock: %v", name, err)
		}
		if n := w.number("HLEN", first.keys.staging); n != before {
			t.Errorf("%s without the lock has changed something", name)
		}
	}
	w.must(second.End(w.ctx))
	// Others than those that were begun with.
	other := opts
	other.Queue = "another"
	if _, err := takeover.Run(w.ctx, w.source(other), w.dest, takeover.Options{Queue: "another"}); err == nil || !strings.Contains(err.Error(), "broken off") {
		t.Errorf("an import with other flags: %v", err)
	}
	w.run(opts)
	w.check()
}

func TestFollow(t *testing.T) {
	w := newWorld(t, single(t))
	w.fill()
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	n := 0
	d := &takeovertest.Dying{Source: w.source(options()), Do: func(int) {
		if n < 100 {
			w.add(fmt.Sprint("new", n), w.dest.Clock.Now().Add(time.Duration(n-50)*time.Second))
			n++
		} else if w.number("ZCARD", zset) == 0 {
			stop()
		}
		if n%10 == 0 {
			w.do("SCRIPT", "FLUSH") // as a restart does
		}
		w.dest.Work()
		w.pop()
	}}
	r, err := takeover.Run(ctx, d, w.dest, takeover.Options{Queue: queue, Follow: true, Replace: true, Poll: time.Millisecond})
	w.must(err)
	if r.Left != 0 || r.Moved < 60 || r.Staged {
		t.Errorf("report %+v", r)
	}
	w.check()
}

func TestKeysOfTheSameSlot(t *testing.T) {
	for key, want := range map[string]string{
		"orders":      "{orders}:duetime:staging",
		"{a}orders":   "{a}orders:duetime:staging",
		"x{a}orders}": "x{a}orders}:duetime:staging",
		"a b:中":       "{a b:中}:duetime:staging",
		"a{}b":        "a{}b:duetime:staging",
		"a}b":         "a}b:duetime:staging",
		"a{b":         "a{b:duetime:staging",
	} {
		got, same := keysFor(key)
		if got.staging != want || same != !strings.ContainsAny(key, "{}") && same != strings.Contains(key, "{a}") {
			t.Errorf("%q: %q, in the same slot: %v", key, got.staging, same)
		}
	}
}

func TestCluster(t *testing.T) {
	c := testserver.RedisCluster(t, nil)
	client := dial(t, "redis+cluster://"+strings.Join(c.Addrs(), ","))
	w := newWorld(t, client)
	w.do("SET", "other", "x")
	for i, key := range []string{"orders", "{a}orders", "x:{a}:中 z"} {
		for j := range 700 {
			w.do("ZADD", key, fmt.Sprint(w.dest.Clock.Now().UnixMilli()+int64(j)), fmt.Sprintf("%d-%d", i, j))
		}
		opts := options()
		opts.ZSet, opts.Hash = key, ""
		if r := w.run(opts); r.Moved != 700 {
			t.Errorf("%s: report %+v", key, r)
		}
	}
	stats, err := w.dest.Stats(w.ctx, queue)
	w.must(err)
	if n := stats.Scheduled + stats.Ready; n != 2100 {
		t.Errorf("%d tasks, want 2100", n)
	}
	opts := options()
	opts.ZSet, opts.Hash = "orders", "orders:hash"
	w.do("ZADD", "orders", "1772366400000", "a")
	if _, err := takeover.Run(w.ctx, w.source(opts), w.dest, takeover.Options{Queue: queue}); err == nil || !strings.Contains(err.Error(), "another slot") {
		t.Errorf("a hash in another slot: %v", err)
	}
	opts.ZSet, opts.Hash = "{t}z", "{t}h"
	w.do("ZADD", "{t}z", "1772366400000", "with payload")
	w.do("HSET", "{t}h", "with payload", "p")
	if r := w.run(opts); r.Moved != 1 {
		t.Errorf("report %+v", r)
	}
}

func TestSentinel(t *testing.T) {
	master := testserver.Redis(t, nil)
	s := testserver.Sentinels(t, master, nil)
	w := newWorld(t, dial(t, "redis+sentinel://"+strings.Join(s.Addrs(), ",")+"/"+s.Name))
	w.fill()
	if r := w.run(options()); r.Moved != 19 {
		t.Errorf("report %+v", r)
	}
	w.check()
}

func TestWrongKeys(t *testing.T) {
	w := newWorld(t, single(t))
	w.do("SET", zset, "x")
	if _, err := takeover.Run(w.ctx, w.source(options()), w.dest, takeover.Options{Queue: queue}); err == nil || !strings.Contains(err.Error(), "must be a zset") {
		t.Errorf("a string for a sorted set: %v", err)
	}
	w.do("DEL", zset)
	w.do("ZADD", hash, "1", "x")
	if _, err := takeover.Run(w.ctx, w.source(options()), w.dest, takeover.Options{Queue: queue}); err == nil || !strings.Contains(err.Error(), "must be a hash") {
		t.Errorf("a sorted set for a hash: %v", err)
	}
}

func TestURLs(t *testing.T) {
	for _, url := range []string{"", "http://x", "redis://", "redis://a,b", "redis+sentinel://a", "redis://a?x=1", "redis://:p%zz@a", "redis://a?shards=3", "redis://a?wake=poll"} {
		_, err := clientOption(url)
		var input *store.InputError
		if !errors.As(err, &input) || strings.Contains(err.Error(), "p%zz") {
			t.Errorf("%q: %v", url, err)
		}
	}
	o, err := clientOption("rediss+sentinel://user:p%40ss@s1,s2:5/main/3?sentinel_password=x")
	if err != nil || !slices.Equal(o.InitAddress, []string{"s1:26379", "s2:5"}) || o.Username != "user" || o.Password != "p@ss" ||
		o.Sentinel.MasterSet != "main" || o.Sentinel.Password != "x" || o.SelectDB != 3 || o.TLSConfig == nil || o.Sentinel.TLSConfig == nil {
		t.Errorf("%+v, %v", o, err)
	}
}
