package tieredstore

import "context"

// Wake implements store.Store. Ticks come from both stores: from the hot one at once,
// whichever process caused them, and from the cold one as it says itself.
func (s *Store) Wake(name string) (<-chan struct{}, func()) {
	out := make(chan struct{}, 1)
	q := s.queue(name)
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	if s.ctx.Err() == nil {
		s.background.Go(func() { s.listen(ctx, q, out) })
	}
	s.mu.Unlock()
	q.mu.Lock()
	q.waiters++
	q.mu.Unlock()
	if ctx.Err() == nil {
		s.startTender(q)
	}
	stopped := false
	return out, func() {
		cancel()
		q.mu.Lock()
		defer q.mu.Unlock()
		if !stopped {
			stopped = true
			q.waiters--
		}
	}
}

// listen passes ticks on until ctx ends.
func (s *Store) listen(ctx context.Context, q *queue, out chan<- struct{}) {
	coldTicks, stopCold := s.cold.Wake(q.name)
	defer stopCold()
	h, opened := s.hot.opened()
	var hotTicks <-chan struct{}
	for {
		if h != nil && hotTicks == nil {
			ticks, stopHot := h.Wake(q.name)
			defer stopHot()
			hotTicks = ticks
		}
		select {
		case <-ctx.Done():
			return
		case <-opened:
			h, opened = s.hot.opened()
			continue
		case <-coldTicks:
			q.look() // it may be a task that the window does not have
		case <-hotTicks:
		}
		select {
		case out <- struct{}{}:
		default:
		}
	}
}
