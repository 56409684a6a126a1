package diskstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/duetime/duetime/store"
)

func openBench(b *testing.B) *Store {
	b.Helper()
	s, err := Open(b.TempDir(), &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func newTasks(n, from int) []store.NewTask {
	payload := make([]byte, 100)
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{Queue: "bench", ID: fmt.Sprintf("order-%014d", from+i), Payload: payload}
	}
	return tasks
}

// BenchmarkSchedule: batches of a size, from 64 goroutines, each call synced.
func BenchmarkSchedule(b *testing.B) {
	for _, size := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := openBench(b)
			ctx := context.Background()
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range 64 {
				wg.Go(func() {
					for {
						n := int(next.Add(int64(size)))
						if n-size >= b.N {
							return
						}
						if _, err := s.Schedule(ctx, newTasks(min(size, b.N-n+size), n)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkDrain: claim and ack by a number at a time, one goroutine each for
// claiming and for acking.
func BenchmarkDrain(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := openBench(b)
			ctx := context.Background()
			for from := 0; from < b.N; from += 1000 {
				if _, err := s.Schedule(ctx, newTasks(min(1000, b.N-from), from)); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			acks := make(chan []store.Settlement, 4)
			var wg sync.WaitGroup
			wg.Go(func() {
				for batch := range acks {
					if _, err := s.Settle(ctx, batch); err != nil {
						b.Error(err)
					}
				}
			})
			for left := b.N; left > 0; {
				res, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "bench", Max: size}})
				if err != nil || len(res[0].Tasks) == 0 {
					b.Fatal(err, left)
				}
				batch := make([]store.Settlement, len(res[0].Tasks))
				for i := range batch {
					batch[i] = store.Settlement{Receipt: res[0].Tasks[i].Receipt, Action: store.Ack}
				}
				acks <- batch
				left -= len(batch)
			}
			close(acks)
			wg.Wait()
			b.StopTimer()
			st, err := s.Stats(ctx, "bench")
			if err != nil || st != (store.Stats{}) {
				b.Fatal("left over:", st, err)
			}
		})
	}
}
