package tieredstore

import (
	"context"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// settingsFor is how old what a claim knows of a queue's settings may be: a
	// change is seen within a second.
	settingsFor = 900 * time.Millisecond
	// auditEvery is how often a claim of each process goes to the truth itself.
	auditEvery = 5 * time.Second
)

// queue is what this process knows of a queue.
type queue struct {
	name string
	kick chan struct{} // for the tender

	mu       sync.Mutex
	window   store.Window // the latest that was seen
	settings store.Settings
	readAt   time.Time // when the settings were read
	audited  time.Time
	used     time.Time // when somebody claimed last
	waiters  int       // who waits for ticks
	tended   bool      // the tender runs
	count    int64     // tasks in the window, as last seen
}

func (s *Store) queue(name string) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name, kick: make(chan struct{}, 1), audited: time.Now()}
		s.queues[name] = q
	}
	return q
}

// known is the latest window that was seen: to be asked before a call to the hot
// store, and given to heard with the answer.
func (q *queue) known() store.Window {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.window
}

// heard takes in what the hot store said of a window, and what was known before it
// was asked. It is false where that is of no use: the window is lost, or is older
// than what was known.
func (s *Store) heard(q *queue, before, w store.Window) bool {
	q.mu.Lock()
	if q.window.Before(w) {
		q.window = w
	} else if w.Generation == q.window.Generation && w.Version == q.window.Version {
		// Only the edge and what is loaded may differ, and both only grow.
		if w.Edge.After(q.window.Edge) {
			q.window.Edge = w.Edge
		}
		if w.Loaded.After(q.window.Loaded) {
			q.window.Loaded = w.Loaded
		}
	}
	q.mu.Unlock()
	if w.Generation == 0 {
		q.look()
		return false
	}
	if w.Before(before) {
		s.counts.older.Add(1)
		s.hot.spoil(q.name)
		q.look()
		return false
	}
	return true
}

// look lets the tender look at once.
func (q *queue) look() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

func (s *Store) kickAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.look()
	}
}

// learn returns a queue's settings, read again where they are old.
func (s *Store) learn(ctx context.Context, q *queue) (store.Settings, error) {
	q.mu.Lock()
	settings, read := q.settings, q.readAt
	q.mu.Unlock()
	if !read.IsZero() && time.Since(read) < settingsFor {
		return settings, nil
	}
	read = time.Now()
	settings, err := s.cold.Settings(ctx, q.name)
	if err != nil {
		return settings, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if settings.Version >= q.settings.Version {
		q.settings, q.readAt = settings, read
	}
	return settings, nil
}

// claiming notes that somebody claims, and reports whether this one is to go to
// the truth for once.
func (s *Store) claiming(q *queue) (audit bool) {
	q.mu.Lock()
	q.used = time.Now()
	if audit = time.Since(q.audited) > s.opts.auditing; audit {
		q.audited = q.used
	}
	q.mu.Unlock()
	s.startTender(q)
	return audit
}
