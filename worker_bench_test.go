package duetime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/memstore"
)

// BenchmarkWorker says how many tasks a second a worker does whose handler does
// nothing.
func BenchmarkWorker(b *testing.B) {
	for _, concurrency := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			b.ReportAllocs()
			client := duetime.NewClient(memstore.New(nil), quiet())
			defer client.Close()
			tasks := make([]duetime.NewTask, b.N)
			due := time.Now()
			for i := range tasks {
				tasks[i] = duetime.NewTask{ID: fmt.Sprint(i), Payload: []byte("payload"), Due: due}
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
			runtime.GC()
			used := cpu()
			b.ResetTimer()
			if err := worker.Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(float64((cpu()-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
			if s, err := client.Stats(context.Background(), "bench"); err != nil || s != (duetime.Stats{}) {
				b.Fatalf("left: %+v, %v", s, err)
			}
		})
	}
}

// BenchmarkLateness says how late handlers start, with 2,000 tasks a second at
// random times. Take -benchtime 60000x for half a minute.
func BenchmarkLateness(b *testing.B) {
	for name, open := range map[string]func() (store.Store, error){
		"mem":  func() (store.Store, error) { return memstore.New(nil), nil },
		"disk": func() (store.Store, error) { return diskstore.Open(b.TempDir(), nil) },
	} {
		b.Run(name, func(b *testing.B) {
			st, err := open()
			if err != nil {
				b.Fatal(err)
			}
			client := duetime.NewClient(st, quiet())
			defer client.Close()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			late := make([]time.Duration, b.N)
			var done atomic.Int64
			worker := duetime.NewWorker(client, nil)
			worker.Handle("bench", func(_ context.Context, t *duetime.Task) error {
				n := done.Add(1)
				late[n-1] = time.Now().Round(0).Sub(t.Due)
				if n == int64(b.N) {
					cancel()
				}
				return nil
			})
			// Scheduled up to a second ahead, one by one, as they would be in life.
			go func() {
				for start, i := time.Now(), 0; i < b.N && ctx.Err() == nil; i++ {
					time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / 2000)))
					delay := 10*time.Millisecond + rand.N(time.Second)
					if _, err := client.Schedule(ctx, "bench", duetime.NewTask{Delay: delay}); err != nil {
						b.Error(err)
					}
				}
			}()
			if err := worker.Run(ctx); err != nil {
				b.Fatal(err)
			}
			slices.Sort(late)
			if late[0] < 0 {
				b.Errorf("one came %v early", -late[0])
			}
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(late[len(late)-1].Microseconds()), "max-µs")
		})
	}
}

// BenchmarkSchedule says how many tasks a second callers schedule one by one.
func BenchmarkSchedule(b *testing.B) {
	client := duetime.NewClient(memstore.New(nil), quiet())
	defer client.Close()
	payload := []byte("payload")
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.Schedule(b.Context(), "bench", duetime.NewTask{Payload: payload, Delay: time.Hour}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}
