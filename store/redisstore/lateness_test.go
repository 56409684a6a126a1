package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/bench/benchtest"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// BenchmarkLateness says how late handlers of one process start that run what
// another one schedules, 2,000 tasks a second, each up to a second ahead. Take
// -benchtime 60000x for half a minute.
func BenchmarkLateness(b *testing.B) {
	for _, on := range []string{"server", "cluster"} {
		for _, wake := range []Wake{WakePubSub, WakeKeyspace} {
			b.Run(fmt.Sprintf("on=%s/wake=%s", on, wake), func(b *testing.B) {
				o := Options{Wake: wake, Prefix: nextPrefix()}
				if on == "cluster" {
					o.Cluster, o.Addrs = true, sharedCluster(b).Addrs()
				} else {
					o.Addrs = []string{sharedServer(b).Addr}
				}
				producing := duetime.NewClient(openFor(b, o), &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
				defer producing.Close()
				consuming := duetime.NewClient(openFor(b, o), &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
				defer consuming.Close()
				benchtest.Lateness{Producing: producing, Consuming: consuming, Rate: 2000, Least: 10 * time.Millisecond}.Run(b)
			})
		}
	}
}

// A worker of a queue with many shards asks for what is due where it is due, and
// not everywhere each time: however its acks go in between, a claim and its ack
// take a few commands.
func TestManyShardsAreNotAskedEachTime(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	o := Options{Addrs: []string{server.Addr}, Shards: 16, Prefix: nextPrefix()}
	producer, s := open(t, o), open(t, o)
	const n = 50
	start := time.Now().Add(time.Second)
	many(t, producer, "orders", n, func(i int) store.NewTask {
		return store.NewTask{ID: fmt.Sprint(i), Due: start.Add(time.Duration(i) * 20 * time.Millisecond)}
	})
	ctx := context.Background()
	claim := func() store.ClaimResult {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 10}})
		must(t, err)
		return r[0]
	}
	next := claim().Next // and now it knows all shards
	do(t, server, "CONFIG", "RESETSTAT")
	claims, got := 0, 0
	for got < n {
		time.Sleep(time.Until(next) + time.Millisecond)
		r := claim()
		claims++
		for _, l := range r.Tasks {
			got++
			settled, err := s.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}})
			must(t, err)
			if settled[0].Outcome != store.Acked {
				t.Fatalf("%+v", settled[0])
			}
		}
		if next = r.Next; next.IsZero() && got < n {
			t.Fatalf("%d tasks of %d came, and no more are expected", got, n)
		}
	}
	scripts := commandStats(t, server)["evalsha"].calls
	t.Logf("%d tasks in %d claims: %d scripts", got, claims, scripts)
	if scripts > 3*n {
		t.Errorf("%d scripts for %d tasks, want at most %d", scripts, n, 3*n)
	}
}
