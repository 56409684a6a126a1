package main

import (
	"testing"
	"time"
)

// demoHistory is the events of a run in which everything is right.
func demoHistory() []demoEvent {
	start := time.Date(2030, 1, 31, 7, 0, 0, 0, time.UTC)
	var events []demoEvent
	orders := demoOrders(start)
	for _, o := range orders {
		events = append(events, demoEvent{What: demoScheduled, ID: o.id, At: start, Due: o.due})
	}
	for i, o := range orders {
		switch {
		case !o.paidAt.IsZero():
			events = append(events, demoEvent{What: demoPaid, ID: o.id, At: o.paidAt})
		case o.due.Before(start):
			events = append(events, demoEvent{What: demoRun, ID: o.id, At: start.Add(time.Duration(i) * time.Microsecond)})
		default:
			// Every one is late by another time, 1 to 50 µs.
			late := time.Duration((i-demoOverdue)/2+1) * time.Microsecond
			events = append(events, demoEvent{What: demoRun, ID: o.id, At: o.due.Add(late)})
		}
	}
	return events
}

func TestJudgeGood(t *testing.T) {
	r := judge(demoHistory())
	want := "150 run, 50 cancelled, 0 early, 0 repeated, 0 lost, lateness p50 0.03 ms p99 0.05 ms"
	if got := r.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !r.good() || len(r.Late) != 50 {
		t.Errorf("got %+v", r)
	}
	if p := r.percentile(0.5); p != 25*time.Microsecond {
		t.Errorf("p50 is %v, want 25µs", p)
	}
	if p := r.percentile(0.99); p != 50*time.Microsecond {
		t.Errorf("p99 is %v, want 50µs", p)
	}
}

// TestJudgeBad shows that each thing that must not happen is noticed.
func TestJudgeBad(t *testing.T) {
	find := func(events []demoEvent, what, id string) int {
		for i, e := range events {
			if e.What == what && e.ID == id {
				return i
			}
		}
		t.Fatalf("no event %s of %s", what, id)
		return 0
	}
	const lastOrder, paidOrder = "order-199", "order-200"
	for name, c := range map[string]struct {
		change func([]demoEvent) []demoEvent
		want   func(demoResult) bool
	}{
		"early": {
			func(events []demoEvent) []demoEvent {
				i := find(events, demoRun, lastOrder)
				events[i].At = events[find(events, demoScheduled, lastOrder)].Due.Add(-time.Nanosecond)
				return events
			},
			func(r demoResult) bool { return r.Early == 1 && r.Run == 150 },
		},
		"run twice": {
			func(events []demoEvent) []demoEvent {
				return append(events, events[find(events, demoRun, lastOrder)])
			},
			func(r demoResult) bool { return r.Repeated == 1 && r.Run == 150 },
		},
		"run after cancel": {
			func(events []demoEvent) []demoEvent {
				due := events[find(events, demoScheduled, paidOrder)].Due
				return append(events, demoEvent{What: demoRun, ID: paidOrder, At: due.Add(time.Millisecond)})
			},
			func(r demoResult) bool { return r.Repeated == 1 && r.Run == 151 && r.Cancelled == 50 },
		},
		"never run": {
			func(events []demoEvent) []demoEvent {
				i := find(events, demoRun, lastOrder)
				return append(events[:i], events[i+1:]...)
			},
			func(r demoResult) bool { return r.Lost == 1 && r.Run == 149 },
		},
		"not oldest first": {
			func(events []demoEvent) []demoEvent {
				i, j := find(events, demoRun, "order-010"), find(events, demoRun, "order-011")
				events[i].ID, events[j].ID = events[j].ID, events[i].ID
				return events
			},
			func(r demoResult) bool { return r.Disorder == 1 },
		},
	} {
		r := judge(c.change(demoHistory()))
		if r.good() || !c.want(r) {
			t.Errorf("%s: got %s, disorder %d, good: %v", name, r.String(), r.Disorder, r.good())
		}
	}
}
