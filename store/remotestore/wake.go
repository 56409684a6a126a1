package remotestore

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	firstReconnect   = 50 * time.Millisecond
	longestReconnect = 5 * time.Second
)

// waker shares a queue's stream of ticks among those who wait for them. It is
// guarded by Store.mu.
type waker struct {
	waiters map[chan struct{}]struct{}
	cancel  context.CancelFunc
}

// Wake implements store.Store. It does not wait for the stream to be there; a
// tick comes when it is, and whenever it is there again after it broke.
func (s *Store) Wake(queue string) (ticks <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || store.CheckQueue(queue) != nil {
		return ch, func() {}
	}
	w := s.wakers[queue]
	if w == nil {
		w = &waker{waiters: map[chan struct{}]struct{}{}}
		s.wakers[queue] = w
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(s.ctx)
		s.calls.Go(func() { s.listen(ctx, queue, w) })
	} else {
		ch <- struct{}{} // the stream's first tick is gone
	}
	w.waiters[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(w.waiters, ch)
		if len(w.waiters) == 0 && s.wakers[queue] == w {
			delete(s.wakers, queue)
			w.cancel()
		}
	}
}

func (s *Store) tick(w *waker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range w.waiters {
		select {
		case ch <- struct{}{}:
		default: // it has one to read
		}
	}
}

// listen keeps a stream open until ctx ends.
func (s *Store) listen(ctx context.Context, queue string, w *waker) {
	defer w.cancel()
	pause := firstReconnect
	for {
		if s.stream(ctx, queue, w) {
			pause = firstReconnect
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, longestReconnect)
	}
}

// stream reads one stream to its end, and says whether there was any.
func (s *Store) stream(ctx context.Context, queue string, w *waker) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+queuePath(queue)+"/wake", nil)
	if err != nil {
		return false
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false
	}
	// A connection that died without a word is noticed by the comments that the
	// server sends to keep it alive.
	watchdog := time.AfterFunc(time.Minute, func() { resp.Body.Close() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(resp.Body)
	any := false
	for lines.Scan() {
		watchdog.Reset(time.Minute)
		if strings.HasPrefix(lines.Text(), "data:") {
			any = true
			s.tick(w)
		}
	}
	return any
}
