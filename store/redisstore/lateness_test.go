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
