package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime"
)

const ms = "ms"

// late counts how late tasks are.
type late struct {
	store   *Histogram // hand-out minus due time, by the store's clock
	handler *Histogram // start of the handler minus due time, by this machine's clock
}

func newLate() late { return late{NewHistogram(), NewHistogram()} }

func (l late) add(t *duetime.Task) {
	// Round(0): due times come from a wall clock, so the monotonic one is of no use.
	l.handler.Add(time.Now().Round(0).Sub(t.Due))
	l.store.Add(t.Lateness())
}

func (r *runner) planLateness() measurement {
	m := measurement{note: "lateness"}
	all := newLate()
	at := []struct {
		percent float64
		name    string
		label   string
	}{{50, "p50", "p50"}, {90, "p90", "p90"}, {99, "p99", "p99"}, {99.9, "p999", "p99.9"}, {100, "max", "max"}}
	for _, q := range at {
		m.figures = append(m.figures, Figure{Job: Lateness, Name: "lateness_" + q.name, Label: fmt.Sprintf("%s, %d tasks/s, hand-out", q.label, r.Rate), Unit: ms})
	}
	for _, q := range at {
		m.figures = append(m.figures, Figure{Job: Lateness, Name: "lateness_handler_" + q.name, Label: fmt.Sprintf("%s, %d tasks/s, in the handler", q.label, r.Rate), Unit: ms})
	}
	m.run = func(ctx context.Context, size float64) ([]float64, error) {
		l, err := r.lateness(ctx, time.Duration(float64(r.Window)*size))
		if err != nil {
			return nil, err
		}
		if size == 1 {
			all.store.Merge(l.store)
			all.handler.Merge(l.handler)
		}
		var values []float64
		for _, h := range []*Histogram{l.store, l.handler} {
			for _, q := range at {
				values = append(values, h.At(q.percent))
			}
		}
		return values, nil
	}
	m.done = func(context.Context) error {
		r.report.Distributions = append(
			r.report.Distributions,
			all.store.Distribution(Lateness, "lateness", "hand-out, by the store's clock"),
			all.handler.Distribution(Lateness, "lateness_handler", "in the handler, by this machine's clock"),
		)
		if n := all.store.Early(); n > 0 {
			return fmt.Errorf("%d tasks were handed out before they were due", n)
		}
		return nil
	}
	return m
}

func (r *runner) lateness(ctx context.Context, window time.Duration) (late, error) {
	queue, err := r.queues.open(ctx, "lateness")
	if err != nil {
		return late{}, err
	}
	n := max(1, int(float64(r.Rate)*window.Seconds()))
	l := newLate()
	t := r.newTally(queue, n)
	stop := r.work(ctx, map[string]duetime.Handler{queue: func(_ context.Context, task *duetime.Task) error {
		l.add(task)
		return nil
	}})
	err = r.ahead(ctx, n, func(start time.Time) error {
		return r.fillQueue(ctx, queue, 0, n, func(int) (time.Time, time.Duration) {
			return start.Add(rand.N(window)).Truncate(time.Millisecond), 0
		})
	})
	if err == nil {
		err = t.wait(ctx)
	}
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return late{}, err
	}
	r.queues.count(queue, -n)
	return l, r.clean(ctx, queue)
}

var errTooSlow = errors.New("the tasks could not be scheduled before the first of them was due")

// ahead has n tasks scheduled that are all to come due after start. Where that takes
// longer than it should there is nothing to be measured.
func (r *runner) ahead(ctx context.Context, n int, fill func(start time.Time) error) error {
	begun := time.Now()
	start := begun.Add(r.lead + time.Duration(n)*r.perTask).Truncate(time.Millisecond)
	if err := fill(start); err != nil {
		return err
	}
	took := time.Since(begun)
	if time.Now().After(start) {
		return fmt.Errorf("%w, in %v", errTooSlow, took)
	}
	// The warm-up has shown what this store needs; twice that is enough.
	r.perTask = min(r.perTask, 2*took/time.Duration(n)+time.Microsecond)
	return ctx.Err()
}

// slowest is how long scheduling one of many tasks may take at first.
const slowest = 200 * time.Microsecond
