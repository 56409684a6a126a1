package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// Benchmark measures a store by what its users do most. Each figure is per task,
// whatever the size of the batch. Stores whose clock stands still until it is
// moved can be measured too: everything is due long ago.
func Benchmark(b *testing.B, h Harness) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("Schedule/batch=%d", size), func(b *testing.B) { benchSchedule(b, h, size, 1) })
	}
	b.Run("Schedule/batch=1/callers=64", func(b *testing.B) { benchSchedule(b, h, 1, 64) })
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("ClaimAndAck/batch=%d", size), func(b *testing.B) { benchClaim(b, h, size) })
	}
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("Cancel/batch=%d", size), func(b *testing.B) { benchCancel(b, h, size) })
	}
	b.Run("ClaimNothing", func(b *testing.B) { benchNothing(b, h) })
}

type bench struct {
	*testing.B
	store.Store
	ctx context.Context
}

func openBench(b *testing.B, h Harness) *bench {
	st := h.Open(b).Store
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	b.ReportAllocs()
	return &bench{b, st, context.Background()}
}

// tasks makes n tasks from number from on; due is when the first is due.
func benchTasks(from, n int, due time.Time) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{
			Queue: q, ID: fmt.Sprintf("order-%09d", from+i), Payload: []byte(`{"order":123456,"shop":"a shop","amount":"12.50"}`),
			Due: due.Add(time.Duration(from+i) * time.Millisecond),
		}
	}
	return tasks
}

func (b *bench) fill(n int, due time.Time) {
	for from := 0; from < n; from += 1000 {
		b.check(b.Schedule(b.ctx, benchTasks(from, min(1000, n-from), due)))
	}
}

// check wants every outcome to be one that changed something.
func (b *bench) check(results []store.Result, err error) {
	if err != nil {
		b.Error(err)
		return
	}
	for i := range results {
		if o := results[i].Outcome; o != store.Created && o != store.Acked && o != store.Cancelled {
			b.Errorf("%v (%v)", o, results[i].Err)
			return
		}
	}
}

func benchSchedule(b0 *testing.B, h Harness, size, callers int) {
	b := openBench(b0, h)
	var next atomic.Int64
	b.ResetTimer()
	together(callers, func(int) {
		for {
			to := int(next.Add(int64(size)))
			if to-size >= b.N || b.Failed() {
				return
			}
			b.check(b.Schedule(b.ctx, benchTasks(to-size, min(size, b.N-(to-size)), store.MaxTime.AddDate(-1000, 0, 0))))
		}
	})
}

func benchClaim(b0 *testing.B, h Harness, size int) {
	b := openBench(b0, h)
	b.fill(b.N, store.MinTime)
	b.ResetTimer()
	for done := 0; done < b.N && !b.Failed(); {
		r, err := b.Claim(b.ctx, []store.ClaimRequest{{Queue: q, Max: size, Lease: time.Hour}})
		if err != nil || len(r[0].Tasks) == 0 {
			b.Fatalf("claim after %d of %d: %v", done, b.N, err)
		}
		acks := make([]store.Settlement, len(r[0].Tasks))
		for i := range acks {
			acks[i] = store.Settlement{Receipt: r[0].Tasks[i].Receipt, Action: store.Ack}
		}
		b.check(b.Settle(b.ctx, acks))
		done += len(acks)
	}
}

func benchCancel(b0 *testing.B, h Harness, size int) {
	b := openBench(b0, h)
	if !b.Capabilities().Cancel {
		b.Skip("the store can not cancel")
	}
	due := store.MaxTime.AddDate(-1000, 0, 0)
	b.fill(b.N, due)
	b.ResetTimer()
	for from := 0; from < b.N && !b.Failed(); from += size {
		tasks := benchTasks(from, min(size, b.N-from), due)
		cancels := make([]store.CancelRequest, len(tasks))
		for i := range tasks {
			cancels[i] = store.CancelRequest{Queue: q, ID: tasks[i].ID}
		}
		b.check(b.Cancel(b.ctx, cancels))
	}
}

// benchNothing is what an idle dispatcher's look costs beside a hundred thousand
// tasks that are not due.
func benchNothing(b0 *testing.B, h Harness) {
	b := openBench(b0, h)
	b.fill(100_000, store.MaxTime.AddDate(-1000, 0, 0))
	b.ResetTimer()
	for range b.N {
		if r, err := b.Claim(b.ctx, []store.ClaimRequest{{Queue: q, Max: 10}}); err != nil || len(r[0].Tasks) != 0 {
			b.Fatalf("%d tasks, %v", len(r[0].Tasks), err)
		}
	}
}
