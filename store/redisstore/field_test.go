package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// fillUp schedules tasks until the server has no room, and returns the error of
// the first for which there was none.
func fillUp(t *testing.T, s *Store, queue string) error {
	t.Helper()
	for n := 0; n < 200; n++ {
		tasks := make([]store.NewTask, 100)
		for i := range tasks {
			tasks[i] = store.NewTask{Queue: queue, ID: fmt.Sprintf("fill-%d-%d", n, i), Payload: make([]byte, 10_000), Delay: time.Hour}
		}
		results, err := s.Schedule(context.Background(), tasks)
		must(t, err)
		for i := range results {
			if results[i].Err != nil {
				return results[i].Err
			}
		}
	}
	t.Fatal("the server has room for everything")
	return nil
}

// B14: a server that is full takes no more tasks, and says so of each. What it
// has goes its way, and once there is room again all is as before.
func TestFullServer(t *testing.T) {
	for name, o := range map[string]Options{
		"one shard":      {Shards: 1},
		"several shards": {Shards: 4},
		"keyspace":       {Shards: 1, Wake: WakeKeyspace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--maxmemory", "16mb", "--maxmemory-policy", "noeviction"}})
			o.Addrs = []string{server.Addr}
			fullServer(t, server, open(t, o))
		})
	}
}

func fullServer(t *testing.T, server *testserver.RedisServer, s *Store) {
	ctx := context.Background()
	const queue = "orders"
	settings := store.DefaultSettings()
	settings.MaxLost = 5
	_, err := s.PutSettings(ctx, queue, settings)
	must(t, err)
	var before []store.NewTask
	for i := range 60 {
		before = append(before, store.NewTask{Queue: queue, ID: fmt.Sprint("before-", i), Due: time.Now().Add(time.Duration(i-100) * time.Second)})
	}
	_, err = s.Schedule(ctx, before)
	must(t, err)
	claim := func(n int, lease time.Duration) []store.Lease {
		t.Helper()
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: queue, Max: n, Lease: lease, Worker: "w"}})
		must(t, err)
		if len(r[0].Tasks) != n {
			t.Fatalf("got %d tasks of %d: %+v", len(r[0].Tasks), n, r[0])
		}
		return r[0].Tasks
	}
	held := claim(20, time.Minute)
	short := claim(10, 700*time.Millisecond)
	if err := fillUp(t, s, queue); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a full server says %v", err)
	}
	// Whatever the size, as there is no byte left.
	do(t, server, "CONFIG", "SET", "maxmemory", "1mb")

	// A batch of each kind: nothing of it is there, in a queue that is there or not.
	count := func() store.Stats {
		st, err := s.Stats(ctx, queue)
		must(t, err)
		return st
	}
	was := count()
	var refused []store.NewTask
	for i := range 50 {
		refused = append(refused, store.NewTask{Queue: queue, ID: fmt.Sprint("refused-", i), Payload: []byte("x")},
			store.NewTask{Queue: "new", ID: fmt.Sprint("refused-", i)})
	}
	// One that would be replaced stays what it is.
	refused = append(refused, store.NewTask{Queue: queue, ID: "before-59", Payload: []byte("other"), Conflict: store.ConflictReplace})
	results, err := s.Schedule(ctx, refused)
	must(t, err)
	for i, r := range results {
		if r.Outcome != store.Refused || !errors.Is(r.Err, store.ErrFull) {
			t.Fatalf("%s %s on a full server: %+v", refused[i].Queue, refused[i].ID, r)
		}
	}
	if now := count(); now != was {
		t.Errorf("stats were %+v, and are %+v after schedules that were refused", was, now)
	}
	for _, task := range refused {
		got, err := s.Get(ctx, []store.Key{{Queue: task.Queue, ID: task.ID}})
		must(t, err)
		if there := got[0].Outcome == store.Found; there != (task.ID == "before-59") || there && len(got[0].Task.Payload) > 0 {
			t.Errorf("%s %s: %+v", task.Queue, task.ID, got[0])
		}
	}
	// Settings are not stored either, and say why.
	put, err := s.Settings(ctx, queue)
	must(t, err)
	if _, err := s.PutSettings(ctx, queue, put); !errors.Is(err, store.ErrFull) {
		t.Errorf("PutSettings on a full server: %v", err)
	}

	// What is under way ends as it should, in one batch.
	actions := []store.Settlement{
		{Receipt: held[0].Receipt, Action: store.Extend, Lease: time.Hour},
		{Receipt: held[1].Receipt, Action: store.Ack},
		{Receipt: held[2].Receipt, Action: store.Retry, Delay: time.Hour, Error: strings.Repeat("long ", 1000)},
		{Receipt: held[3].Receipt, Action: store.Snooze, Delay: time.Hour},
		{Receipt: held[4].Receipt, Action: store.Bury, Error: "no good"},
		{Receipt: held[5].Receipt, Action: store.Release},
	}
	want := []store.Outcome{store.Extended, store.Acked, store.Retrying, store.Snoozed, store.Dead, store.Released}
	results, err = s.Settle(ctx, actions)
	must(t, err)
	for i := range results {
		if results[i].Outcome != want[i] {
			t.Errorf("%v on a full server: %+v", actions[i].Action, results[i])
		}
	}
	for i, a := range actions[1:] { // each alone too
		a.Receipt = held[6+i].Receipt
		results, err = s.Settle(ctx, []store.Settlement{a})
		must(t, err)
		if results[0].Outcome != want[1+i] {
			t.Errorf("%v alone on a full server: %+v", a.Action, results[0])
		}
	}
	results, err = s.Cancel(ctx, []store.CancelRequest{{Queue: queue, ID: "before-30"}, {Queue: queue, ID: held[12].ID, Force: true}, {Queue: queue, ID: held[4].ID}})
	must(t, err)
	for i := range results {
		if results[i].Outcome != store.Cancelled {
			t.Errorf("cancel %d on a full server: %+v", i, results[i])
		}
	}
	more := claim(5, 700*time.Millisecond)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var keys []store.Key // on several shards they do not all end at once
		for _, l := range append(short[:len(short):len(short)], more...) {
			keys = append(keys, store.Key{Queue: queue, ID: l.ID})
		}
		got, err := s.Get(ctx, keys)
		must(t, err)
		// What was lost before it was claimed the second time is still out.
		if !slices.ContainsFunc(got, func(r store.Result) bool {
			return r.Task == nil || r.Task.Lost == 0 || r.Task.State != store.StateReady
		}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("leases do not end on a full server: %+v", got)
		}
	}
	back := claim(15, time.Minute)
	lost := 0
	for _, l := range back {
		lost += l.Lost
	}
	if lost < 10 {
		t.Errorf("of tasks claimed on a full server %d were out before, want at least 10", lost)
	}
	if n, err := s.Redrive(ctx, store.RedriveRequest{Queue: queue, All: true}); err != nil || n < 1 {
		t.Errorf("redrive on a full server: %d, %v", n, err)
	}
	checkWhole(t, s)

	// Room again.
	do(t, server, "CONFIG", "SET", "maxmemory", "64mb")
	results, err = s.Schedule(ctx, refused)
	must(t, err)
	for i, r := range results {
		if r.Outcome != store.Created && r.Outcome != store.Replaced {
			t.Errorf("%s %s with room again: %+v", refused[i].Queue, refused[i].ID, r)
		}
	}
	results, err = s.Settle(ctx, []store.Settlement{{Receipt: back[0].Receipt, Action: store.Ack}, {Receipt: held[0].Receipt, Action: store.Ack}})
	must(t, err)
	for i := range results {
		if results[i].Outcome != store.Acked {
			t.Errorf("ack %d with room again: %+v", i, results[i])
		}
	}
	checkWhole(t, s)
}

// A server that throws away keys of any kind is no place for tasks, unless who
// opens it says that he knows.
func TestEvictingServer(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"}})
	if _, err := Open(context.Background(), &Options{Addrs: []string{server.Addr}}); err == nil || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("Open: %v", err)
	}
	var warned []string
	s := open(t, Options{Addrs: []string{server.Addr}, AllowEviction: true, Warn: func(m string) { warned = append(warned, m) }})
	if len(warned) != 1 || !strings.Contains(warned[0], "allkeys-lru") {
		t.Errorf("warned of %q", warned)
	}
	if d := s.Capabilities().Durability; !strings.Contains(d, "evicted") {
		t.Errorf("durability: %s", d)
	}
	do(t, server, "CONFIG", "SET", "maxmemory-policy", "volatile-lru") // tasks are in keys that do not expire
	open(t, Options{Addrs: []string{server.Addr}, Warn: func(m string) { t.Errorf("warned of %s", m) }})
}

// B27: a hundred thousand keys of others that expire, while wake-ups go by events
// of keys: nobody hears of them, and tasks come in time.
func TestForeignKeysExpire(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	conn, err := server.Dial()
	must(t, err)
	defer conn.Close()
	// Spread over two seconds.
	_, err = conn.Do("EVAL", `for i = 1, 100000 do redis.call('SET', 'foreign:' .. i, 'x', 'PX', 500 + i % 2000) end`, "0")
	must(t, err)
	l := newLoad(t, alike(5, Options{Addrs: []string{server.Addr}, Wake: WakeKeyspace}))
	before := l.plain[4].counts.heard.Load()
	l.start("orders")
	l.finish(history.Options{})
	if n := do(t, server, "DBSIZE").(int64); n > 20 {
		t.Errorf("%d keys are left: the foreign ones were not to expire after the test", n)
	}
	heard := l.plain[4].counts.heard.Load() - before
	t.Logf("a worker heard of %d events", heard)
	if heard > 20_000 {
		t.Errorf("a worker heard of %d events: those of foreign keys too", heard)
	}
}
