package main

import (
	"fmt"
	"slices"
	"time"
)

// What happened to an order in the demo.
const (
	demoScheduled = "scheduled"
	demoPaid      = "paid, cancelled"
	demoRun       = "timed out"
)

// demoEvent is one thing that happened. At is by the clock of this process.
type demoEvent struct {
	What string
	ID   string
	At   time.Time
	Due  time.Time // of demoScheduled
}

// demoResult is what the events come to. Every order must come to one end, and
// to one only: it runs, or it is cancelled.
type demoResult struct {
	Run       int // orders that ran
	Cancelled int // orders that were cancelled
	Early     int // runs before the due time
	Repeated  int // ends after an order's first: a second run, a run of a cancelled order
	Lost      int // orders without an end

	// Disorder counts runs of orders that were overdue when the first of them
	// ran, and came after one that was due later.
	Disorder int

	// Late is how late those orders ran that came due while there was a worker,
	// sorted. The others were late by half an hour before anything was started.
	Late []time.Duration
}

func judge(events []demoEvent) demoResult {
	var r demoResult
	due := make(map[string]time.Time)
	ends := make(map[string]int)
	runs := make(map[string]int)
	var firstRun, lastOverdue time.Time
	for _, e := range events {
		if e.What == demoRun && (firstRun.IsZero() || e.At.Before(firstRun)) {
			firstRun = e.At
		}
	}
	for _, e := range events {
		switch e.What {
		case demoScheduled:
			due[e.ID] = e.Due
			continue
		case demoPaid:
			r.Cancelled++
		case demoRun:
			d := due[e.ID]
			if runs[e.ID]++; runs[e.ID] == 1 {
				r.Run++
			}
			if e.At.Before(d) {
				r.Early++
			}
			if d.After(firstRun) {
				r.Late = append(r.Late, e.At.Sub(d))
			} else if d.Before(lastOverdue) {
				r.Disorder++
			} else {
				lastOverdue = d
			}
		}
		if ends[e.ID]++; ends[e.ID] > 1 {
			r.Repeated++
		}
	}
	for id := range due {
		if ends[id] == 0 {
			r.Lost++
		}
	}
	slices.Sort(r.Late)
	return r
}

// good says whether everything that must not happen did not.
func (r *demoResult) good() bool {
	return r.Early == 0 && r.Repeated == 0 && r.Lost == 0 && r.Disorder == 0
}

// percentile is the lateness that p of the orders, 0 to 1, did not exceed.
func (r *demoResult) percentile(p float64) time.Duration {
	if len(r.Late) == 0 {
		return 0
	}
	// The nearest rank: the smallest value with at least p of all at or below it.
	i := int(p * float64(len(r.Late)))
	if float64(i) == p*float64(len(r.Late)) && i > 0 {
		i--
	}
	return r.Late[min(i, len(r.Late)-1)]
}

func (r *demoResult) String() string {
	return fmt.Sprintf("%d run, %d cancelled, %d early, %d repeated, %d lost, lateness p50 %s p99 %s",
		r.Run, r.Cancelled, r.Early, r.Repeated, r.Lost, milliseconds(r.percentile(0.5)), milliseconds(r.percentile(0.99)))
}
