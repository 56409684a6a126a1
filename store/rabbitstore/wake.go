package rabbitstore

import "sync"

// wakers are those who wait for ticks, by queue. A queue need not exist to be
// waited for.
type wakers struct {
	mu sync.Mutex
	by map[string]map[chan struct{}]struct{}
}

// Wake implements store.Store. Ticks come of what this process does; whoever waits for
// what others do uses ClaimWait.
func (s *Store) Wake(queue string) (<-chan struct{}, func()) {
	w := &s.wakers
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = make(map[string]map[chan struct{}]struct{})
	}
	if w.by[queue] == nil {
		w.by[queue] = make(map[chan struct{}]struct{})
	}
	w.by[queue][c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.by[queue], c)
		if len(w.by[queue]) == 0 {
			delete(w.by, queue)
		}
	}
}

// tick never blocks: a channel that is full has a tick that was not read yet.
func (w *wakers) tick(queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.by[queue] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
