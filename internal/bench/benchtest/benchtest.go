// Package benchtest is what Go benchmarks of several packages share.
package benchtest

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

// Lateness schedules b.N tasks and reports how late the handlers start that run them.
type Lateness struct {
	// Producing schedules, Consuming runs: one client, or two of the same store.
	Producing, Consuming *duetime.Client
	// Rate is in tasks a second.
	Rate int
	// Before: all are scheduled before the first is due, at random times. Otherwise
	// they are scheduled one by one, each up to a second ahead and no less than Least.
	Before bool
	Least  time.Duration
}

// Run is for one goroutine, as b is.
func (l Lateness) Run(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	late := make([]time.Duration, b.N)
	var done atomic.Int64
	worker := duetime.NewWorker(l.Consuming, nil)
	worker.Handle("bench", func(_ context.Context, t *duetime.Task) error {
		n := done.Add(1)
		late[n-1] = time.Now().Round(0).Sub(t.Due)
		if n == int64(b.N) {
			cancel()
		}
		return nil
	})
	payload := make([]byte, 100)
	var making sync.WaitGroup
	if l.Before {
		l.before(b, payload)
	} else {
		// Several producers, since each waits for the disk.
		const producers = 32
		for p := range producers {
			making.Go(func() {
				for start, i := time.Now(), p; i < b.N && ctx.Err() == nil; i += producers {
					time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(l.Rate))))
					delay := l.Least + rand.N(time.Second)
					if _, err := l.Producing.Schedule(ctx, "bench", duetime.NewTask{Payload: payload, Delay: delay}); err != nil {
						b.Error(err)
					}
				}
			})
		}
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

func (l Lateness) before(b *testing.B, payload []byte) {
	b.Helper()
	start := time.Now().Add(time.Second)
	tasks := make([]duetime.NewTask, b.N)
	for i := range tasks {
		due := start.Add(rand.N(time.Duration(b.N) * time.Second / time.Duration(l.Rate))).Truncate(time.Millisecond)
		tasks[i] = duetime.NewTask{Payload: payload, Due: due}
	}
	if _, err := l.Producing.ScheduleMany(b.Context(), "bench", tasks); err != nil {
		b.Fatal(err)
	}
	if time.Now().After(start) {
		b.Fatal("this machine is too slow, or too busy, to schedule them in a second")
	}
}
