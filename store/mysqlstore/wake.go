package mysqlstore

import (
	"context"
	"sync"
	"time"
)

const (
	// How often the watcher looks for what other processes have done: the longest
	// that a task which they made due earlier stays unnoticed.
	lookOften = 200 * time.Millisecond
	// After so long without anything new it looks less often.
	lookCalm   = 10 * time.Second
	lookSeldom = time.Second
	// While a transaction of the user's own may commit at any moment.
	lookClose = 20 * time.Millisecond
	closeFor  = 2 * time.Second
)

// wakers are those who wait for ticks, by queue. A queue need not exist to be
// waited for.
type wakers struct {
	mu      sync.Mutex
	by      map[string]map[chan struct{}]struct{}
	watched bool // the watcher runs
	closed  bool
}

// Wake implements store.Store. Ticks come at once for what this Store does, and
// within a quarter of a second (or a second, where nothing has happened for ten)
// for what other processes do. A task scheduled in a transaction of the user's own
// is noticed within some 20 ms of its commit in the process that scheduled it, if
// it commits within two seconds.
func (s *Store) Wake(name string) (<-chan struct{}, func()) {
	w := &s.wakers
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = make(map[string]map[chan struct{}]struct{})
	}
	if w.by[name] == nil {
		w.by[name] = make(map[chan struct{}]struct{})
	}
	w.by[name][c] = struct{}{}
	if !w.watched && !w.closed {
		w.watched = true
		s.background.Go(s.watch)
	}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.by[name], c)
		if len(w.by[name]) == 0 {
			delete(w.by, name)
		}
	}
}

// tick never blocks: a channel that is full has a tick that was not read yet.
func (w *wakers) tick(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.by[name] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// names are the queues that somebody waits for. Where there are none the watcher
// is to end.
func (w *wakers) names() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.by) == 0 || w.closed {
		w.watched = false
		return nil
	}
	names := make(map[string]bool, len(w.by))
	for name := range w.by {
		names[name] = true
	}
	return names
}

// watch looks, as long as anybody waits, for what other processes have done. All
// queues are looked at together, in two packets.
func (s *Store) watch() {
	versions := make(map[uint32]int64)
	news := time.Now()
	for {
		wait := lookOften
		if time.Since(news) > lookCalm {
			wait = lookSeldom
		}
		if time.Now().UnixNano() < s.closely.Load() {
			wait = lookClose
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.kick:
			continue // to find out how long to wait now
		case <-time.After(wait):
		}
		names := s.wakers.names()
		if names == nil {
			return
		}
		if found, err := s.look(s.ctx, names, versions); err == nil && found {
			news = time.Now()
		}
		// An error is of no interest here: who claims meets it too, and looks again
		// once a second whatever happens here.
	}
}

// look wakes those whose queue has something earlier than they know.
func (s *Store) look(ctx context.Context, names map[string]bool, versions map[uint32]int64) (news bool, err error) {
	for name := range names {
		if !validName(name) {
			delete(names, name)
		}
	}
	found, err := s.find(ctx, names)
	if err != nil || len(found) == 0 {
		return false, err
	}
	queues := make([]*queue, 0, len(found))
	for _, q := range found {
		queues = append(queues, q)
	}
	for len(queues) > 0 {
		n := min(len(queues), keysPerStatement)
		views, heads, err := s.heads(ctx, queues[:n])
		if err != nil {
			return news, err
		}
		for i, q := range queues[:n] {
			before, known := versions[q.id]
			versions[q.id] = views[q.id].Version
			changed := known && before != views[q.id].Version
			at := min(heads[i].waiting.at, heads[i].leased)
			if changed || at < q.next.Load() {
				news = true
			}
			q.sooner(at)
			if changed {
				q.wakers.tick(q.name)
			}
		}
		queues = queues[n:]
	}
	return news, nil
}
