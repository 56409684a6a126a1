package duetime_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
)

// BenchmarkHerd says how a store bears many tasks that are due in one millisecond:
// how long until the last is out, as a multiple of what as many tasks take that
// have been due for long, and how late those of another queue are meanwhile, 200 a
// second. Take -benchtime 100000x.
func BenchmarkHerd(b *testing.B) {
	onStores(b, func(b *testing.B, client *duetime.Client) {
		drained := herd(b, client, "before", time.Now(), nil)
		var late []time.Duration
		took := herd(b, client, "herd", time.Now().Add(time.Duration(b.N)*20*time.Microsecond+time.Second), &late)
		b.ReportMetric(float64(b.N)/took.Seconds(), "tasks/s")
		b.ReportMetric(took.Seconds()/drained.Seconds(), "of-drain")
		if len(late) > 0 {
			slices.Sort(late)
			b.ReportMetric(float64(late[(len(late)-1)*99/100].Microseconds()), "other-p99-µs")
			b.ReportMetric(float64(late[len(late)-1].Microseconds()), "other-max-µs")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// herd schedules b.N tasks for one instant and returns how long after that, or
// after the worker began, the last has been handed out. Where late is given there
// are tasks of another queue from then on, and it gets how late they are.
func herd(b *testing.B, client *duetime.Client, queue string, due time.Time, late *[]time.Duration) time.Duration {
	b.Helper()
	tasks := make([]duetime.NewTask, b.N)
	for i := range tasks {
		tasks[i] = duetime.NewTask{Payload: make([]byte, 100), Due: due}
	}
	if _, err := client.ScheduleMany(b.Context(), queue, tasks); err != nil {
		b.Fatal(err)
	}
	if late != nil && time.Now().After(due) {
		b.Fatal("this machine is too slow, or too busy, to schedule them in time")
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	worker := duetime.NewWorker(client, &duetime.WorkerOptions{Concurrency: 256})
	var done atomic.Int64
	var last time.Time
	worker.Handle(queue, func(context.Context, *duetime.Task) error {
		if done.Add(1) == int64(b.N) {
			last = time.Now()
			cancel()
		}
		return nil
	})
	start := time.Now()
	if late != nil {
		start = due
		var mu sync.Mutex
		worker.Handle("other", func(_ context.Context, t *duetime.Task) error {
			mu.Lock()
			defer mu.Unlock()
			*late = append(*late, time.Now().Round(0).Sub(t.Due))
			return nil
		})
		others := make([]duetime.NewTask, 4000)
		for i := range others {
			others[i] = duetime.NewTask{Payload: make([]byte, 100), Due: due.Add(rand.N(20 * time.Second))}
		}
		if _, err := client.ScheduleMany(ctx, "other", others); err != nil {
			b.Fatal(err)
		}
	}
	if err := worker.Run(ctx); err != nil {
		b.Fatal(err)
	}
	return last.Sub(start)
}
