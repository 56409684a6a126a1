package tieredstore

import (
	"sync/atomic"

	"github.com/duetime/duetime/store"
)

// counts are what this store has seen since it was opened.
type counts struct {
	lost      atomic.Int64 // times that the hot store went away
	filled    atomic.Int64 // windows that were loaded from nothing
	older     atomic.Int64 // windows that were older than what was known
	forgotten atomic.Int64 // windows that were forgotten, as something was not noted in them
	loaded    atomic.Int64 // tasks
	mended    atomic.Int64 // tasks
	stale     atomic.Int64 // tasks
	straight  atomic.Int64 // tasks
}

// Measures implements store.Measurer.
func (s *Store) Measures() []store.Measure {
	up, entries, ahead := 0.0, 0.0, 0.0
	if s.hot.there() {
		up = 1
	}
	now := s.clock.now()
	s.mu.Lock()
	for _, q := range s.queues {
		q.mu.Lock()
		if q.tended {
			entries += float64(q.count)
			if d := q.window.Loaded.Sub(now).Seconds(); q.window.Generation != 0 && (ahead == 0 || d < ahead) {
				ahead = d
			}
		}
		q.mu.Unlock()
	}
	s.mu.Unlock()
	counter := func(name, help string, v *atomic.Int64) store.Measure {
		return store.Measure{Name: name, Help: help, Counter: true, Value: float64(v.Load())}
	}
	measures := []store.Measure{{Name: "hot_up", Help: "1 where the hot store answers, 0 where claims go to the cold one.", Value: up}}
	if up == 1 { // else nobody knows
		measures = append(
			measures,
			store.Measure{Name: "window_tasks", Help: "Tasks in the windows of queues that are claimed from here.", Value: entries},
			store.Measure{Name: "window_ahead_seconds", Help: "How far the window that reaches least far is loaded, from now.", Value: ahead},
		)
	}
	return append(
		measures,
		counter("hot_lost_total", "Times that the hot store went away.", &s.counts.lost),
		counter("windows_filled_total", "Windows that were loaded from nothing: new ones, and those that the hot store had lost.", &s.counts.filled),
		counter("windows_older_total", "Windows found to be older than they had been.", &s.counts.older),
		counter("windows_forgotten_total", "Windows loaded again because something could not be noted in them.", &s.counts.forgotten),
		counter("loaded_total", "Tasks put into windows ahead of time.", &s.counts.loaded),
		counter("mended_total", "Tasks that a window lacked, or had for later, and that were put right.", &s.counts.mended),
		counter("stale_total", "Entries of windows that the truth did not confirm.", &s.counts.stale),
		counter("straight_total", "Tasks claimed from the cold store itself.", &s.counts.straight),
	)
}

// Degraded implements store.Degrader: the hot store may be away.
func (s *Store) Degraded() string {
	if s.hot.there() {
		return ""
	}
	return "the hot store is away: claims go to the cold one"
}
