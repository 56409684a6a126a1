package duetime_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
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
			b.ResetTimer()
			if err := worker.Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			if s, err := client.Stats(context.Background(), "bench"); err != nil || s != (duetime.Stats{}) {
				b.Fatalf("left: %+v, %v", s, err)
			}
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
