package duetime_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/bench/benchtest"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/redisstore"
)

// openRedis starts a Redis that syncs its append-only file each second.
func openRedis(b *testing.B) (store.Store, error) {
	server := testserver.Redis(b, &testserver.RedisOptions{AOF: true})
	return redisstore.Open(b.Context(), &redisstore.Options{Addrs: []string{server.Addr}})
}

// onStores runs a benchmark on stores that are there or can be started.
func onStores(b *testing.B, run func(b *testing.B, client *duetime.Client)) {
	for _, s := range []struct {
		name string
		open func(b *testing.B) (store.Store, error)
	}{
		{"mem", func(*testing.B) (store.Store, error) { return memstore.New(nil), nil }},
		{"disk", func(b *testing.B) (store.Store, error) { return diskstore.Open(b.TempDir(), nil) }},
		{"redis", openRedis},
	} {
		b.Run("store="+s.name, func(b *testing.B) {
			st, err := s.open(b)
			if err != nil {
				b.Fatal(err)
			}
			client := duetime.NewClient(st, quiet())
			defer client.Close()
			run(b, client)
		})
	}
}

// BenchmarkWorker says how many tasks a second a worker does whose handler does
// nothing.
func BenchmarkWorker(b *testing.B) {
	for _, concurrency := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			onStores(b, func(b *testing.B, client *duetime.Client) { drain(b, client, concurrency) })
		})
	}
}

func drain(b *testing.B, client *duetime.Client, concurrency int) {
	b.ReportAllocs()
	tasks := make([]duetime.NewTask, b.N)
	due := time.Now()
	for i := range tasks {
		tasks[i] = duetime.NewTask{ID: fmt.Sprint(i), Payload: make([]byte, 100), Due: due}
	}
	if _, err := client.ScheduleMany(b.Context(), "bench", tasks); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var done atomic.Int64
	worker := duetime.NewWorker(client, &duetime.WorkerOptions{Concurrency: concurrency})
	worker.Handle("bench", func(context.Context, *duetime.Task) error {
		if done.Add(1) == int64(b.N) {
			cancel()
		}
		return nil
	})
	b.ResetTimer()
	used := cpu()
	if err := worker.Run(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64((cpu()-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	if s, err := client.Stats(context.Background(), "bench"); err != nil || s != (duetime.Stats{}) {
		b.Fatalf("left: %+v, %v", s, err)
	}
}

// BenchmarkLateness says how late handlers start, with 2,000 tasks a second at
// random times. Take -benchtime 60000x for half a minute.
func BenchmarkLateness(b *testing.B) {
	for _, before := range []bool{true, false} {
		b.Run(fmt.Sprintf("scheduled-before=%v", before), func(b *testing.B) {
			onStores(b, func(b *testing.B, client *duetime.Client) {
				benchtest.Lateness{Producing: client, Consuming: client, Rate: 2000, Before: before, Least: 10 * time.Millisecond}.Run(b)
			})
		})
	}
}

// BenchmarkSchedule says how many tasks a second 64 callers schedule one by one.
func BenchmarkSchedule(b *testing.B) {
	onStores(b, func(b *testing.B, client *duetime.Client) {
		payload := make([]byte, 100)
		b.ReportAllocs()
		b.SetParallelism(64 / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := client.Schedule(b.Context(), "bench", duetime.NewTask{Payload: payload, Delay: time.Hour}); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	})
}

// BenchmarkScheduleMany says how many tasks a second 8 callers schedule by 100.
func BenchmarkScheduleMany(b *testing.B) {
	onStores(b, func(b *testing.B, client *duetime.Client) {
		b.ReportAllocs()
		b.SetParallelism(8 / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			tasks := make([]duetime.NewTask, 0, 100)
			flush := func() {
				if _, err := client.ScheduleMany(b.Context(), "bench", tasks); err != nil {
					b.Error(err)
				}
				tasks = tasks[:0]
			}
			for pb.Next() {
				if tasks = append(tasks, duetime.NewTask{Payload: make([]byte, 100), Delay: time.Hour}); len(tasks) == cap(tasks) {
					flush()
				}
			}
			flush()
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	})
}
