package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
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
				lateness(b, o, 2000)
			})
		}
	}
}

func lateness(b *testing.B, o Options, rate int) {
	producing := duetime.NewClient(openFor(b, o), &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
	defer producing.Close()
	consuming := duetime.NewClient(openFor(b, o), &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
	defer consuming.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	late := make([]time.Duration, b.N)
	var done atomic.Int64
	worker := duetime.NewWorker(consuming, nil)
	worker.Handle("bench", func(_ context.Context, t *duetime.Task) error {
		n := done.Add(1)
		late[n-1] = time.Now().Round(0).Sub(t.Due)
		if n == int64(b.N) {
			cancel()
		}
		return nil
	})
	const producers = 32
	var making sync.WaitGroup
	for p := range producers {
		making.Go(func() {
			for start, i := time.Now(), p; i < b.N && ctx.Err() == nil; i += producers {
				time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				delay := 10*time.Millisecond + rand.N(time.Second)
				if _, err := producing.Schedule(ctx, "bench", duetime.NewTask{Payload: make([]byte, 100), Delay: delay}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	if err := worker.Run(ctx); err != nil {
		b.Fatal(err)
	}
	making.Wait()
	slices.Sort(late)
	if late[0] < 0 {
		b.Errorf("one came %v early", -late[0])
	}
	at := func(q float64) float64 { return float64(late[int(q*float64(len(late)-1))].Microseconds()) }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(at(0.999), "p99.9-µs")
	b.ReportMetric(at(1), "max-µs")
	b.ReportMetric(0, "ns/op")
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
