package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime/internal/bench"
)

// The jobs that systems are compared by.
const (
	jobSingle = "single" // tasks scheduled a second by single calls of 64 goroutines
	jobBatch  = "batch"  // the same by calls for 100, of 8 goroutines
	jobDrain  = "drain"  // tasks that are due: handed out and done a second
	jobLate   = "late"   // lateness in the handler at 2,000 tasks a second
	jobMemory = "memory" // bytes for a task that waits
)

func jobNames() []string { return []string{jobSingle, jobBatch, jobDrain, jobLate, jobMemory} }

const (
	singleProducers = 64
	batchProducers  = 8
	batchSize       = 100
	lateRate        = 2000
	// lateGrace is for how long tasks are waited for that should have come.
	lateGrace = 8 * time.Second
	// drainPatience is for how long a drain may take; then what was done counts.
	drainPatience = 40 * time.Second
)

// outcome is what one run of a job gave: values by the name of the figure.
type outcome struct {
	values map[string]float64
	late   *bench.Histogram // of jobLate
}

func runJob(ctx context.Context, o *options, job string, s system, size float64) (outcome, error) {
	n := int(float64(o.tasks) * size)
	if err := s.reset(ctx); err != nil {
		return outcome{}, fmt.Errorf("taking the tasks away: %w", err)
	}
	switch job {
	case jobSingle:
		return rate(ctx, s, n, singleProducers, 1, time.Duration(float64(o.length)*size))
	case jobBatch:
		return rate(ctx, s, n*2, batchProducers, batchSize, time.Duration(float64(o.length)*size))
	case jobDrain:
		return drain(ctx, s, n)
	case jobLate:
		return lateness(ctx, s, time.Duration(float64(o.window)*size))
	}
	return memory(ctx, s, n)
}

// inAnHour is when tasks are due that are only to be kept.
func inAnHour() func(int) time.Time {
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	return func(int) time.Time { return due }
}

func rate(ctx context.Context, s system, n, producers, batch int, length time.Duration) (outcome, error) {
	done, took, err := produce(ctx, s, n, producers, batch, length, inAnHour())
	return outcome{values: map[string]float64{"rate": float64(done) / took.Seconds()}}, err
}

// produce schedules n tasks, or those that can be scheduled in a time.
func produce(ctx context.Context, s system, n, producers, batch int, length time.Duration, due func(int) time.Time) (done int, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, ok atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for p := range producers {
		all.Go(func() {
			for ctx.Err() == nil && (length == 0 || time.Since(begun) < length) {
				from := int(next.Add(int64(batch))) - batch
				if from >= n {
					return
				}
				to := min(from+batch, n)
				if err := s.put(ctx, p, from, to, due); err != nil {
					cancel(err)
					return
				}
				ok.Add(int64(to - from))
			}
		})
	}
	all.Wait()
	return int(ok.Load()), time.Since(begun), context.Cause(ctx)
}

// drain is timed from the first handler to the last task that is done with.
func drain(ctx context.Context, s system, n int) (outcome, error) {
	past := time.Now().Add(-time.Second)
	if _, _, err := produce(ctx, s, n, batchProducers, batchSize, 0, func(int) time.Time { return past }); err != nil {
		return outcome{}, err
	}
	seen := make([]atomic.Bool, n)
	var first, acked, distinct atomic.Int64
	begun := time.Now()
	stop, err := s.consume(ctx, func(b []byte) {
		first.CompareAndSwap(0, int64(time.Since(begun)))
		if i, _, err := parsePayload(b); err == nil && i < n && !seen[i].Swap(true) {
			distinct.Add(1)
		}
	}, func() { acked.Add(1) })
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	done := func() int { return int(acked.Load()) }
	if c, ok := s.(counter); ok {
		done = func() int {
			if distinct.Load() < int64(n) { // asking costs the system something
				return 0
			}
			left, err := c.left(ctx)
			if err != nil {
				return 0
			}
			return n - left
		}
	}
	for done() < n {
		if ctx.Err() != nil {
			return outcome{}, ctx.Err()
		}
		if time.Since(begun) > drainPatience {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	took := time.Since(begun) - time.Duration(first.Load())
	if distinct.Load() < int64(n) {
		fmt.Fprintf(os.Stderr, "    %d of %d in %v\n", distinct.Load(), n, drainPatience)
	}
	return outcome{values: map[string]float64{"rate": float64(distinct.Load()) / took.Seconds()}}, nil
}

// lateness has all tasks scheduled before the first is due, at random times.
func lateness(ctx context.Context, s system, window time.Duration) (outcome, error) {
	n := int(window.Seconds() * lateRate)
	// River and RabbitMQ take longest to schedule them; 5,000 a second all can do.
	start := time.Now().Add(time.Second + time.Duration(n)*200*time.Microsecond)
	dues := make([]time.Time, n)
	for i := range dues {
		dues[i] = start.Add(rand.N(window)).Truncate(time.Millisecond)
	}
	slices.SortFunc(dues, time.Time.Compare)
	rand.Shuffle(n, func(i, k int) { dues[i], dues[k] = dues[k], dues[i] })
	h := bench.NewHistogram()
	seen := make([]atomic.Bool, n)
	var count atomic.Int64
	stop, err := s.consume(ctx, func(b []byte) {
		now := time.Now()
		if i, due, err := parsePayload(b); err == nil && i < n && !seen[i].Swap(true) {
			h.Add(now.Sub(due))
			count.Add(1)
		}
	}, func() {})
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	if _, _, err := produce(ctx, s, n, batchProducers, batchSize, 0, func(i int) time.Time { return dues[i] }); err != nil {
		return outcome{}, err
	}
	if time.Now().After(start) {
		return outcome{}, fmt.Errorf("%d tasks could not be scheduled before the first was due", n)
	}
	end := start.Add(window + lateGrace)
	for count.Load() < int64(n) && time.Now().Before(end) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	missing := float64(n) - float64(count.Load())
	if missing > 0 {
		fmt.Fprintf(os.Stderr, "    %.0f of %d had not come %v after the last was due\n", missing, n, lateGrace)
		// They are at least so late.
		for range int(missing) {
			h.Add(lateGrace)
		}
	}
	return outcome{
		values: map[string]float64{"p50": h.At(50), "p90": h.At(90), "p99": h.At(99), "max": h.At(100), "early": float64(h.Early())},
		late:   h,
	}, nil
}

func memory(ctx context.Context, s system, n int) (outcome, error) {
	w, ok := s.(weigher)
	if !ok {
		return outcome{}, fmt.Errorf("it does not tell its memory")
	}
	before, err := w.memory(ctx)
	if err != nil {
		return outcome{}, err
	}
	due := time.Now().Add(time.Hour)
	_, _, err = produce(ctx, s, n, singleProducers, 1, 0, func(int) time.Time { return due.Add(rand.N(time.Hour)).Truncate(time.Millisecond) })
	if err != nil {
		return outcome{}, err
	}
	after, err := w.memory(ctx)
	return outcome{values: map[string]float64{"bytes": float64(after-before) / float64(n)}}, err
}
