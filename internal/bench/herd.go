package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime"
)

const (
	// otherRate is how many tasks a second another queue has while the herd runs.
	otherRate = 500
	// otherWindow is for how long it has them, from the herd's due time on; those
	// that come due after the herd has gone are not counted.
	otherWindow = 10 * time.Second
)

func (r *runner) planHerd() measurement {
	figure := func(name, label, unit string) Figure {
		return Figure{Job: Herd, Name: name, Label: label, Unit: unit}
	}
	n := fmt.Sprintf("%d tasks due at once: ", r.Herd)
	return measurement{
		note: "herd",
		figures: []Figure{
			figure("herd_first", n+"first", ms),
			figure("herd_half", n+"half", ms),
			figure("herd_last", n+"last", ms),
			figure("herd_against_drain", "last, against the time that draining them takes", "ratio"),
			figure("herd_other_p50", "p50 of another queue meanwhile", ms),
			figure("herd_other_p99", "p99 of another queue meanwhile", ms),
			figure("herd_other_max", "max of another queue meanwhile", ms),
			figure("herd_other_count", "tasks of the other queue meanwhile", "tasks"),
		},
		run: func(ctx context.Context, size float64) ([]float64, error) {
			n := scaled(r.Herd, size)
			rate, err := r.drain(ctx, "herd-drain", n)
			if err != nil {
				return nil, err
			}
			return r.herd(ctx, n, rate)
		},
	}
}

// otherTask is one of the other queue, whose due time is known to the millisecond.
type otherTask struct {
	due  time.Time
	late time.Duration
}

func (r *runner) herd(ctx context.Context, n int, drainRate float64) ([]float64, error) {
	queue, err := r.queues.open(ctx, "herd")
	if err != nil {
		return nil, err
	}
	other, err := r.queues.open(ctx, "herd-other")
	if err != nil {
		return nil, err
	}
	// Where they can not be taken away again, one has to wait for them all.
	window := otherWindow
	if !r.caps.Purge {
		window = time.Second
	}
	others := int(otherRate * window.Seconds())
	// Hand-outs since the due time, in the order in which they come.
	outs := make([]time.Duration, n)
	met := make([]otherTask, others)
	var out, metCount atomic.Int64
	var due time.Time

	t := r.newTally(queue, n)
	err = r.ahead(ctx, n+others, func(start time.Time) error {
		due = start
		if err := r.fillQueue(ctx, queue, 0, n, func(int) (time.Time, time.Duration) { return start, 0 }); err != nil {
			return err
		}
		return r.fillQueue(ctx, other, 0, others, func(int) (time.Time, time.Duration) {
			return start.Add(rand.N(window)).Truncate(time.Millisecond), 0
		})
	})
	if err != nil {
		return nil, err
	}
	stop := r.work(ctx, map[string]duetime.Handler{
		queue: func(_ context.Context, task *duetime.Task) error {
			if i := out.Add(1) - 1; i < int64(n) { // more only where a lease was lost
				outs[i] = time.Now().Round(0).Sub(task.Due)
			}
			return nil
		},
		other: func(_ context.Context, task *duetime.Task) error {
			if i := metCount.Add(1) - 1; i < int64(others) {
				met[i] = otherTask{task.Due, time.Now().Round(0).Sub(task.Due)}
			}
			return nil
		},
	})
	err = t.wait(ctx)
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return nil, err
	}
	r.queues.count(queue, -n)
	r.queues.count(other, -int(metCount.Load()))
	if err := r.queues.empty(ctx, other); err != nil {
		return nil, err
	}
	last := outs[n-1]
	h := NewHistogram()
	for _, o := range met[:min(int64(others), metCount.Load())] {
		if !o.due.After(due.Add(last)) {
			h.Add(o.late)
		}
	}
	drainTime := time.Duration(float64(n) / drainRate * float64(time.Second))
	return []float64{
		milliseconds(outs[0]), milliseconds(outs[(n-1)/2]), milliseconds(last), float64(last) / float64(drainTime),
		h.At(50), h.At(99), h.At(100), float64(h.Count()),
	}, r.clean(ctx, queue)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
