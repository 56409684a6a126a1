package tieredstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

const orders = "orders"

// schedule makes tasks from..to-1 that are due after a delay.
func schedule(t testing.TB, s *Store, from, to int, delay time.Duration) {
	t.Helper()
	tasks := make([]store.NewTask, 0, to-from)
	for i := from; i < to; i++ {
		tasks = append(tasks, store.NewTask{Queue: orders, ID: fmt.Sprint(i), Delay: delay})
	}
	results, err := s.Schedule(context.Background(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Outcome != store.Created {
			t.Fatalf("task %s is %v", tasks[i].ID, r.Outcome)
		}
	}
}

// drain claims and acks until n tasks have run, each once and none early.
func drain(t testing.TB, s *Store, ran map[string]bool, n int) {
	t.Helper()
	ctx := context.Background()
	for end := time.Now().Add(15 * time.Second); len(ran) < n; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d tasks ran", len(ran), n)
		}
		got, err := s.Claim(ctx, []store.ClaimRequest{{Queue: orders, Max: 100, Lease: time.Minute, Worker: "w"}})
		if err != nil {
			t.Fatal(err)
		}
		var acks []store.Settlement
		for _, l := range got[0].Tasks {
			if ran[l.ID] {
				t.Errorf("task %s ran twice", l.ID)
			}
			if l.Due.After(got[0].Now) {
				t.Errorf("task %s ran %v early", l.ID, l.Due.Sub(got[0].Now))
			}
			ran[l.ID] = true
			acks = append(acks, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
		}
		if len(acks) == 0 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if _, err := s.Settle(ctx, acks); err != nil {
			t.Fatal(err)
		}
	}
}

// loaded waits until the queue's window is loaded and lacks nothing.
func (p *pair) loaded(t testing.TB, s *Store, within time.Duration) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		s.claiming(s.queue(orders))
		if _, ok := s.ask(context.Background(), s.queue(orders)); ok {
			if wrong, loaded := p.lacks(t, s, orders); loaded && len(wrong) == 0 {
				return
			}
		}
		if time.Since(start) > within {
			t.Fatalf("the window is not back after %v", within)
		}
	}
}

func up(s *Store) bool {
	for _, m := range s.Measures() {
		if m.Name == "hot_up" {
			return m.Value == 1
		}
	}
	return false
}

func await(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in 10 s: " + what)
		}
	}
}

// ownRedis is a pair whose Redis may be killed.
func ownRedis(t testing.TB) (*pair, *testserver.RedisServer) {
	t.Helper()
	p := newPair(t)
	r := testserver.Redis(t, nil)
	p.redis = r.Addr
	return p, r
}

func TestRedisIsEmptied(t *testing.T) {
	p, r := ownRedis(t)
	s := p.open(t)
	schedule(t, s, 0, 200, time.Second)
	p.loaded(t, s, 5*time.Second)
	if _, err := r.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	if n := len(p.entries(t, orders)); n > 0 {
		t.Fatalf("%d tasks are there after FLUSHALL", n)
	}
	p.loaded(t, s, 5*time.Second)
	if n := len(p.entries(t, orders)); n != 200 {
		t.Errorf("the window has %d tasks, want 200", n)
	}
	drain(t, s, make(map[string]bool), 200)
}

func TestRedisIsAwayAndComesBackEmpty(t *testing.T) {
	p, r := ownRedis(t)
	s := p.open(t)
	schedule(t, s, 0, 100, time.Second)
	schedule(t, s, 1000, 1100, time.Minute)
	p.loaded(t, s, 5*time.Second)
	r.Kill()
	schedule(t, s, 100, 200, 500*time.Millisecond)
	ran := make(map[string]bool)
	drain(t, s, ran, 200)
	if up(s) || s.Degraded() == "" {
		t.Error("the store says that the hot store is there")
	}
	schedule(t, s, 200, 300, 0)
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	await(t, "the hot store is back", func() bool { return up(s) && s.Degraded() == "" })
	drain(t, s, ran, 300)
	p.loaded(t, s, 5*time.Second)
	if n := len(p.entries(t, orders)); n < 100 {
		t.Errorf("the window has %d tasks, want the hundred that are not due", n)
	}
}

// What Redis has of a task that was cancelled while it was away is not believed.
func TestCancelledWhileRedisIsAway(t *testing.T) {
	p, r := ownRedis(t)
	proxy := testserver.Proxy(t, r.Addr)
	direct := *p
	p.redis = proxy.Addr
	s := p.open(t)
	schedule(t, s, 0, 10, 500*time.Millisecond)
	direct.loaded(t, s, 5*time.Second)
	proxy.Blackhole(true)
	for i := range 5 {
		results, err := s.Cancel(context.Background(), []store.CancelRequest{{Queue: orders, ID: fmt.Sprint(i)}})
		if err != nil || results[0].Outcome != store.Cancelled {
			t.Fatal(results, err)
		}
	}
	if n := len(direct.entries(t, orders)); n < 10 {
		t.Fatalf("Redis has %d entries, want those of cancelled tasks too", n)
	}
	proxy.Blackhole(false)
	ran := make(map[string]bool)
	drain(t, s, ran, 5)
	time.Sleep(300 * time.Millisecond)
	drain(t, s, ran, 5)
	for i := range 5 {
		if ran[fmt.Sprint(i)] {
			t.Errorf("task %d ran, and was cancelled", i)
		}
	}
}

func TestCancelledBetweenTheWindowAndTheLease(t *testing.T) {
	p := newPair(t)
	var s *Store
	cancelled := false
	p.opts.auditing = time.Hour
	p.opts.step = func(point, queue string) {
		if point == "taken" && !cancelled {
			cancelled = true
			if r, err := s.cold.Cancel(context.Background(), []store.CancelRequest{{Queue: orders, ID: "0"}}); err != nil || r[0].Outcome != store.Cancelled {
				t.Error(r, err)
			}
		}
	}
	s = p.open(t)
	schedule(t, s, 0, 2, 0)
	p.loaded(t, s, 5*time.Second)
	ran := make(map[string]bool)
	drain(t, s, ran, 1)
	if !cancelled || ran["0"] {
		t.Errorf("cancelled: %v; ran: %v", cancelled, ran)
	}
}

// A task is committed at each step of a load, by another process.
func TestScheduledDuringALoad(t *testing.T) {
	p := newPair(t)
	other := p.open(t)
	n, points := 0, make(map[string]bool)
	q := *p
	q.opts.step = func(point, queue string) {
		if (point == "edge" || point == "slice" || point == "loaded") && n < 30 {
			points[point] = true
			schedule(t, other, n, n+1, time.Minute)
			n++
		}
	}
	s := q.open(t)
	schedule(t, other, 100, 110, time.Minute)
	s.tend(context.Background(), s.queue(orders))
	if len(points) != 3 {
		t.Fatalf("only %v were met", points)
	}
	if got := len(p.entries(t, orders)); got != n+10 {
		t.Errorf("the window has %d tasks, want %d", got, n+10)
	}
}

// A loader moved the edge, and then was no more.
func TestLoaderDiesInTheMiddle(t *testing.T) {
	p := newPair(t)
	s, other := p.open(t), p.open(t)
	schedule(t, s, 0, 50, time.Minute)
	ctx := context.Background()
	if err := s.hot.do(ctx, func(ctx context.Context, h Hot) error {
		if _, mine, _, err := h.Tend(ctx, orders, "dead", 500*time.Millisecond); err != nil || !mine {
			return fmt.Errorf("mine %v: %w", mine, err)
		}
		_, err := h.Begin(ctx, orders, s.clock.now().UnixMilli(), s.clock.now().Add(5*time.Minute), true)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p.loaded(t, other, 5*time.Second)
	if n := len(p.entries(t, orders)); n != 50 {
		t.Errorf("the window has %d tasks, want 50", n)
	}
}
