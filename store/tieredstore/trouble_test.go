package tieredstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// ownServers is a pair both of whose servers may be killed.
func ownServers(t testing.TB) (*pair, *testserver.MariaDBServer, *testserver.RedisServer) {
	t.Helper()
	testserver.Need(t, "mariadb")
	m := testserver.MariaDB(t, nil)
	r := testserver.Redis(t, nil)
	return &pair{url: "mysql://root@" + m.Addr + "/" + m.Database, redis: r.Addr, prefix: "own"}, m, r
}

// refused checks that calls tell of a truth that is away, and do not wait for long.
func refused(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := s.Schedule(ctx, []store.NewTask{{Queue: orders, ID: "refused"}}); err == nil {
		t.Error("a task was scheduled without MySQL")
	}
	if got, err := s.Claim(ctx, []store.ClaimRequest{{Queue: orders, Max: 1, Lease: time.Minute, Worker: "w"}}); err == nil {
		t.Errorf("%+v was claimed without MySQL", got)
	}
	if took := time.Since(began); took > 15*time.Second || ctx.Err() != nil {
		t.Errorf("the errors took %v", took)
	}
}

// again schedules until that is possible again.
func again(t *testing.T, s *Store, from, to int) {
	t.Helper()
	await(t, "MySQL is back", func() bool {
		_, err := s.Stats(context.Background(), orders)
		return err == nil
	})
	schedule(t, s, from, to, 0)
}

func TestMySQLIsAway(t *testing.T) {
	t.Parallel()
	p, m, _ := ownServers(t)
	s := p.open(t)
	schedule(t, s, 0, 100, 500*time.Millisecond)
	p.loaded(t, s, 5*time.Second)
	m.Kill()
	time.Sleep(600 * time.Millisecond) // they become due meanwhile
	refused(t, s)
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	again(t, s, 100, 200)
	drain(t, s, make(map[string]bool), 200)
}

func TestBothAreAway(t *testing.T) {
	t.Parallel()
	p, m, r := ownServers(t)
	s := p.open(t)
	schedule(t, s, 0, 100, 500*time.Millisecond)
	p.loaded(t, s, 5*time.Second)
	r.Kill()
	m.Kill()
	refused(t, s)
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	again(t, s, 100, 200)
	ran := make(map[string]bool)
	drain(t, s, ran, 200)
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	await(t, "the hot store is back", func() bool { return up(s) })
	schedule(t, s, 200, 300, time.Second)
	p.loaded(t, s, 5*time.Second)
	drain(t, s, ran, 300)
}

// The servers do not answer, rather than refuse: for 3 seconds, or 30 where there is
// time.
func TestServersAreSilent(t *testing.T) {
	t.Parallel()
	silence := 3 * time.Second
	if os.Getenv("DUETIME_LONG") != "" {
		silence = 30 * time.Second
	}
	p, m, r := ownServers(t)
	toMySQL, toRedis := testserver.Proxy(t, m.Addr), testserver.Proxy(t, r.Addr)
	direct := *p
	p.url, p.redis = "mysql://root@"+toMySQL.Addr+"/"+m.Database, toRedis.Addr
	s := p.open(t)
	ran := make(map[string]bool)
	schedule(t, s, 0, 100, 100*time.Millisecond)
	direct.loaded(t, s, 5*time.Second)

	toRedis.Blackhole(true)
	for start := time.Now(); time.Since(start) < silence; time.Sleep(silence / 10) {
		n := len(ran)
		schedule(t, s, 100+n, 200+n, 0)
		drain(t, s, ran, n+100)
	}
	toRedis.Blackhole(false)
	await(t, "the hot store is back", func() bool { return up(s) })

	next := len(ran) + 200
	schedule(t, s, next, next+100, 100*time.Millisecond)
	toMySQL.Blackhole(true)
	start := time.Now()
	for time.Since(start) < silence {
		ctx, cancel := context.WithTimeout(context.Background(), silence/3)
		if got, err := s.Claim(ctx, []store.ClaimRequest{{Queue: orders, Max: 1, Lease: time.Minute, Worker: "w"}}); err == nil {
			t.Errorf("%+v was claimed without MySQL", got)
		}
		cancel()
	}
	toMySQL.Blackhole(false)
	await(t, "MySQL is back", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Stats(ctx, orders)
		return err == nil
	})
	drain(t, s, ran, len(ran)+100+100) // those of the beginning too
}

// Redis answers, and refuses what is written, for it is full: it is away until it has
// room again, and not back each time that it is asked.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	p, r := ownRedis(t)
	s := p.open(t)
	schedule(t, s, 0, 10, 100*time.Millisecond)
	p.loaded(t, s, 5*time.Second)
	memory := func(limit string) {
		t.Helper()
		if _, err := r.Do("CONFIG", "SET", "maxmemory", limit); err != nil {
			t.Fatal(err)
		}
	}
	memory("100000")
	schedule(t, s, 10, 20, 100*time.Millisecond)
	await(t, "Redis is away", func() bool { return !up(s) })
	for _, m := range s.Measures() {
		if strings.HasPrefix(m.Name, "window_") {
			t.Errorf("%s is %v, which nobody can know", m.Name, m.Value)
		}
	}
	for start := time.Now(); time.Since(start) < 10*askEvery; time.Sleep(time.Millisecond) {
		if up(s) {
			t.Fatal("Redis is back though it is full")
		}
	}
	ran := make(map[string]bool)
	drain(t, s, ran, 20)
	memory("0")
	await(t, "Redis is back", func() bool { return up(s) })
	schedule(t, s, 20, 30, 100*time.Millisecond)
	p.loaded(t, s, 5*time.Second)
	drain(t, s, ran, 30)
}

// Two stores with databases of their own share a Redis, a prefix and the name of a
// queue: neither touches the other's window.
func TestTwoStoresShareARedis(t *testing.T) {
	t.Parallel()
	p, r := ownRedis(t)
	q := newPair(t)
	q.redis, q.prefix = p.redis, p.prefix
	for i, pair := range []*pair{p, q} {
		pair.opts.auditing = time.Hour
		s := pair.open(t)
		schedule(t, s, 0, 10*(i+1), time.Second)
		pair.loaded(t, s, 5*time.Second)
		defer func() {
			drain(t, s, make(map[string]bool), 10*(i+1))
		}()
	}
	total := 0
	for _, name := range []string{"near", "ends"} {
		keys, err := r.Do("KEYS", p.prefix+":{*/"+orders+"/1.0}:"+name)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys.([]any) {
			n, err := r.Do("ZCARD", key)
			if err != nil {
				t.Fatal(err)
			}
			total += int(n.(int64))
		}
	}
	if total != 30 {
		t.Errorf("the two windows have %d tasks, want 30", total)
	}
}

// A loader stops for so long that another takes over, and then goes on.
func TestTwoLoaders(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	other := p.open(t)
	q := *p
	stopped := false
	q.opts.step = func(point, _ string) {
		if point == "edge" && !stopped {
			stopped = true
			time.Sleep(tendLease + 200*time.Millisecond)
			other.tend(context.Background(), other.queue(orders))
			if n := len(p.entries(t, orders)); n != 50 {
				t.Errorf("the other loader put %d tasks in, want 50", n)
			}
			for _, id := range []string{"0", "1"} {
				if r, err := other.Cancel(context.Background(), []store.CancelRequest{{Queue: orders, ID: id}}); err != nil || r[0].Outcome != store.Cancelled {
					t.Error(r, err)
				}
			}
		}
	}
	s := q.open(t)
	schedule(t, other, 0, 50, time.Minute)
	s.tend(context.Background(), s.queue(orders))
	if !stopped {
		t.Fatal("nothing was loaded")
	}
	p.loaded(t, other, 5*time.Second)
	if n := len(p.entries(t, orders)); n != 48 {
		t.Errorf("the window has %d tasks, want 48", n)
	}
}

// What a process thinks of the truth's clock is an hour wrong.
func TestClockAnHourWrong(t *testing.T) {
	for _, wrong := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(wrong.String(), func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			s := p.open(t)
			schedule(t, s, 0, 20, 2*time.Second)
			schedule(t, s, 1000, 1020, time.Minute)
			p.loaded(t, s, 5*time.Second)
			s.clock.mu.Lock()
			s.clock.at = s.clock.at.Add(wrong)
			s.clock.mu.Unlock()
			drain(t, s, make(map[string]bool), 20) // and none early
			await(t, "the clock is right", func() bool {
				_, err := s.Claim(context.Background(), []store.ClaimRequest{{Queue: orders, Max: 1, Lease: time.Minute, Worker: "w"}})
				return err == nil && time.Until(s.clock.now()).Abs() < time.Minute
			})
		})
	}
}

// A process that only schedules has not heard of the truth's clock for a while, in
// which that was set an hour forward: what is near comes into the window at once.
func TestClockIsSetWhileNobodyAsks(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s, producer := p.open(t), p.open(t)
	schedule(t, s, 0, 1, time.Minute)
	p.loaded(t, s, 5*time.Second)
	producer.clock.mu.Lock()
	producer.clock.at = producer.clock.at.Add(-time.Hour)
	producer.clock.seen = producer.clock.seen.Add(-estimateFor)
	producer.clock.mu.Unlock()
	schedule(t, producer, 1, 3, 2*time.Minute)
	if n := len(p.entries(t, orders)); n != 3 {
		t.Errorf("the window has %d tasks, want 3", n)
	}
}

// Two moves of a task come to the window in the wrong order.
func TestMovesInTheWrongOrder(t *testing.T) {
	p := newPair(t)
	s := p.open(t)
	ctx := context.Background()
	schedule(t, s, 0, 2, time.Minute)
	p.loaded(t, s, 5*time.Second)
	old, err := s.cold.Places(ctx, []store.Key{{Queue: orders, ID: "0"}, {Queue: orders, ID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Reschedule(ctx, []store.RescheduleRequest{{Queue: orders, ID: "0", Delay: time.Second}}); err != nil || r[0].Outcome != store.Rescheduled {
		t.Fatal(r, err)
	}
	s.apply(ctx, s.queue(orders), old[:1]) // the window has it for a minute from now
	early := old[1]
	early.At = s.clock.now()
	s.apply(ctx, s.queue(orders), []store.Place{early}) // and this for now
	began := time.Now()
	ran := make(map[string]bool)
	drain(t, s, ran, 1)
	if took := time.Since(began); !ran["0"] || took > 5*time.Second {
		t.Errorf("%v ran after %v", ran, took)
	}
	p.loaded(t, s, 5*time.Second)
}

// A claimer dies after it took tasks from the window, and another after it leased
// them.
func TestClaimersDie(t *testing.T) {
	p := newPair(t)
	s := p.open(t)
	ctx := context.Background()
	schedule(t, s, 0, 20, 0)
	p.loaded(t, s, 5*time.Second)
	// The first one's tasks stay in the window, as leased for a minute.
	if err := s.hot.do(ctx, func(ctx context.Context, h Hot) error {
		now := s.clock.now()
		taken, err := h.Take(ctx, orders, now, now, 10, now.Add(time.Minute))
		if err == nil && len(taken.Seqs) != 10 {
			return fmt.Errorf("took %+v", taken)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	died := p.open(t)
	if got, err := died.Claim(ctx, []store.ClaimRequest{{Queue: orders, Max: 5, Lease: time.Second, Worker: "w"}}); err != nil || len(got[0].Tasks) != 5 {
		t.Fatal(got, err)
	}
	began := time.Now()
	drain(t, s, make(map[string]bool), 20)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("all were done with after %v only", took)
	}
}

// Redis shows an older window, as after a failover to a replica that lagged.
func TestRedisShowsAnOlderWindow(t *testing.T) {
	p, r := ownRedis(t)
	s := p.open(t)
	schedule(t, s, 0, 10, 2*time.Second)
	p.loaded(t, s, 5*time.Second)
	reply, err := r.Do("KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	old := make(map[string]any)
	for _, key := range reply.([]any) {
		name := fmt.Sprint(key)
		if old[name], err = r.Do("DUMP", name); err != nil {
			t.Fatal(err)
		}
	}
	schedule(t, s, 10, 20, 2*time.Second)
	if r, err := s.Cancel(context.Background(), []store.CancelRequest{{Queue: orders, ID: "0"}}); err != nil || r[0].Outcome != store.Cancelled {
		t.Fatal(r, err)
	}
	if n := len(p.entries(t, orders)); n != 19 {
		t.Fatalf("the window has %d tasks, want 19", n)
	}
	for name, dump := range old {
		if dump == nil {
			continue
		}
		if _, err := r.Do("RESTORE", name, "0", dump, "REPLACE"); err != nil {
			t.Fatal(err)
		}
	}
	ran := make(map[string]bool)
	drain(t, s, ran, 19)
	if ran["0"] {
		t.Error("a task ran that was cancelled")
	}
}
