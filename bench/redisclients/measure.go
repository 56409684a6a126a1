package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// warmUp is how long a client works before it is measured.
const warmUp = 300 * time.Millisecond

// A result is what one run measured. Where it says per call, of one call.
type result struct {
	callsPerSecond float64
	cpu            time.Duration // of this process, per call
	p50, p99       time.Duration
	allocations    float64 // per call
}

func measure(ctx context.Context, s server, op operation, k kind, length time.Duration) (result, error) {
	sha, err := prepare(s, op.script)
	if err != nil {
		return result{}, err
	}
	c, err := k.open(s.addrs)
	if err != nil {
		return result{}, err
	}
	defer c.close()
	if _, err := work(ctx, c, op, sha, warmUp); err != nil {
		return result{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, begin := cpuTime(), time.Now()
	latencies, err := work(ctx, c, op, sha, length)
	took := time.Since(begin)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	if err != nil {
		return result{}, err
	}
	slices.Sort(latencies)
	n := len(latencies)
	return result{
		callsPerSecond: float64(n) / took.Seconds(),
		cpu:            cpu / time.Duration(n),
		p50:            latencies[n/2],
		p99:            latencies[n*99/100],
		allocations:    float64(after.Mallocs-before.Mallocs) / float64(n),
	}, nil
}

// work calls from all goroutines of the operation until the time is up and
// returns how long each call took.
func work(ctx context.Context, c client, op operation, sha string, length time.Duration) ([]time.Duration, error) {
	latencies := make([][]time.Duration, op.goroutines)
	errs := make([]error, op.goroutines)
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for g := range op.goroutines {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(g)))
			list := make([]time.Duration, 0, 1<<14)
			for now := time.Now(); now.Before(end); {
				if errs[g] = op.call(ctx, c, sha, rnd); errs[g] != nil {
					return
				}
				next := time.Now()
				list, now = append(list, next.Sub(now)), next
			}
			latencies[g] = list
		})
	}
	all.Wait()
	list := slices.Concat(latencies...)
	if err := errors.Join(errs...); err != nil || len(list) == 0 {
		return nil, cmp.Or(err, errors.New("no call ended in time"))
	}
	return list, nil
}

// cpuTime is how much CPU this process has used, without the servers it started.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it can not fail with these arguments
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// summary is a row of the table: medians of the runs.
func summary(runs []result, tasks int) string {
	rates := values(runs, func(r result) float64 { return r.callsPerSecond })
	rate := rates[len(rates)/2]
	ms := func(of func(result) time.Duration) float64 {
		return median(runs, func(r result) float64 { return float64(of(r)) / float64(time.Millisecond) })
	}
	return fmt.Sprintf("%.0f (%.0f–%.0f) | %.0f | %.1f | %.2f | %.2f | %.0f",
		rate, rates[0], rates[len(rates)-1], rate*float64(tasks),
		ms(func(r result) time.Duration { return r.cpu })*1000,
		ms(func(r result) time.Duration { return r.p50 }),
		ms(func(r result) time.Duration { return r.p99 }),
		median(runs, func(r result) float64 { return r.allocations }))
}

func values(runs []result, of func(result) float64) []float64 {
	list := make([]float64, len(runs))
	for i, r := range runs {
		list[i] = of(r)
	}
	slices.Sort(list)
	return list
}

func median(runs []result, of func(result) float64) float64 {
	return values(runs, of)[len(runs)/2]
}
