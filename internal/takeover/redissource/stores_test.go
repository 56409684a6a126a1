package redissource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/takeovertest"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// tight is a store with room for a few tasks.
type tight struct {
	store.Store
	room int
}

func (s *tight) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	n := min(s.room, len(tasks))
	s.room -= n
	results, err := s.Store.(store.Importer).Import(ctx, tasks[:n])
	for range tasks[n:] {
		results = append(results, store.Result{Err: store.ErrFull})
	}
	return results, err
}

// TestFullStore: what a full store has no room for goes back, and the old system
// goes on with it.
func TestFullStore(t *testing.T) {
	w := newWorld(t, single(t))
	w.fill()
	r, err := takeover.Run(w.ctx, w.source(options()), &tight{w.dest, 10}, takeover.Options{Queue: queue})
	if !errors.Is(err, store.ErrFull) || r.Moved != 10 || r.Left != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := w.number("ZCARD", zset); n != 9 {
		t.Errorf("%d entries in the source, want 9", n)
	}
	if n := w.number("HLEN", hash); n != 9 {
		t.Errorf("%d payloads in the source, want 9", n)
	}
	w.pop()
	w.do("DEL", w.source(options()).keys.lock)
	w.run(options())
	w.check()
}

// TestWithoutImporter: a store that can not import has the entries scheduled.
func TestWithoutImporter(t *testing.T) {
	w := newWorld(t, single(t))
	w.fill()
	r, err := takeover.Run(w.ctx, w.source(options()), struct{ store.Store }{w.dest}, takeover.Options{Queue: queue})
	w.must(err)
	if r.Moved != 19 {
		t.Errorf("report %+v", r)
	}
	w.check()
}

// TestDeadTaskIsNoObstacle, as it is none to Schedule.
func TestDeadTaskIsNoObstacle(t *testing.T) {
	w := newWorld(t, single(t))
	w.fill()
	_, err := w.dest.Import(w.ctx, []store.Task{{Queue: queue, ID: "past1", State: store.StateDead, Due: w.dest.Clock.Now(), Created: w.dest.Clock.Now()}})
	w.must(err)
	if r := w.run(options()); r.Moved != 19 {
		t.Errorf("report %+v", r)
	}
	w.check()
}

func TestInterrupted(t *testing.T) {
	w := newWorld(t, single(t))
	w.fill()
	ctx, stop := context.WithCancel(w.ctx)
	r, err := takeover.Run(ctx, w.source(options()), w.dest, takeover.Options{Queue: queue, Progress: func(done, _ int64) {
		if done > 0 {
			stop()
		}
	}})
	w.must(err)
	if !r.Interrupted || r.Staged || r.Moved != 7 {
		t.Errorf("report %+v", r)
	}
	if n := w.number("EXISTS", w.source(options()).keys.staging); n != 0 {
		t.Error("something is still on its way")
	}
	w.run(options())
	w.check()
}

// TestRedisKilled kills the source itself, which syncs all that it was told, in the
// middle of a takeover that is begun again until it comes to its end.
func TestRedisKilled(t *testing.T) {
	server := testserver.Redis(t, &testserver.RedisOptions{AOF: true, Config: []string{"--appendfsync", "always"}})
	w := newWorld(t, dial(t, "redis://"+server.Addr))
	for i := range 600 {
		w.add(fmt.Sprint("past", i), w.dest.Clock.Now().Add(-time.Duration(i)*time.Second))
	}
	opts := options()
	opts.LockTime = 200 * time.Millisecond
	kills, steps, failures := 0, 0, 0
	for {
		d := &takeovertest.Dying{Source: w.source(opts), Do: func(int) {
			if steps++; steps%100 == 50 && kills < 4 {
				kills++
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, server.Kill)
			}
		}}
		_, err := takeover.Run(w.ctx, d, w.dest, takeover.Options{Queue: queue})
		w.dest.Work()
		if err == nil {
			break
		}
		if failures++; failures > 100 {
			t.Fatalf("it does not come to its end: %v", err)
		}
		if !server.Running() {
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if kills < 3 || failures < 2 {
		t.Errorf("%d kills, and %d failures: this test shows nothing", kills, failures)
	}
	w.check()
}
