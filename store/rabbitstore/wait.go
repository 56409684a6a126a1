package rabbitstore

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// waiter is a ClaimWait that waits.
type waiter struct {
	request store.ClaimRequest
	answer  chan store.ClaimResult // has room for one
	failed  chan error             // has room for one
}

// ClaimWait implements store.WaitingClaimer: the broker sends what becomes ready
// as it does, up to as many messages as those who wait have hands for.
func (s *Store) ClaimWait(ctx context.Context, r store.ClaimRequest, wait time.Duration) (store.ClaimResult, error) {
	if err := s.begin(ctx, 1); err != nil {
		return store.ClaimResult{}, err
	}
	defer s.end()
	if err := r.Check(); err != nil {
		return store.ClaimResult{Now: s.now(), Err: err}, nil
	}
	if _, err := s.receiving.get(ctx); err != nil {
		return store.ClaimResult{}, fmt.Errorf("claim from %q: %w", r.Queue, err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	l := s.lane(r.Queue)
	w := &waiter{request: r, answer: make(chan store.ClaimResult, 1), failed: make(chan error, 1)}
	l.mu.Lock()
	l.waiters = append(l.waiters, w)
	l.serve()
	l.startPump()
	l.mu.Unlock()
	l.wakePump()
	var err error
	select {
	case result := <-w.answer:
		return result, l.begun(&r, &result)
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-w.failed:
		err = fmt.Errorf("claim from %q: %w", r.Queue, err)
	case <-s.ctx.Done():
		err = store.ErrClosed
	}
	l.mu.Lock()
	if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	l.mu.Unlock()
	l.wakePump()
	select {
	case result := <-w.answer: // it came at the last moment
		if err == nil || r.AtMostOnce {
			return result, l.begun(&r, &result)
		}
		s.release(&result)
	default:
	}
	return store.ClaimResult{Now: s.now()}, err
}

// fail sends those who wait away with an error. They come again.
func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		w.failed <- err
	}
	l.waiters = nil
}

// serve hands what is due to those who wait, first come, first served. Under mu.
func (l *lane) serve() {
	if len(l.waiters) == 0 || len(l.held) == 0 {
		return
	}
	conf := l.store.conf.of(l.queue)
	if conf.settings.Paused {
		return
	}
	now := l.store.now()
	letOut := conf.letOut(now)
	for len(l.waiters) > 0 && l.due(letOut) != nil {
		w := l.waiters[0]
		l.waiters = slices.Delete(l.waiters, 0, 1)
		result := store.ClaimResult{Now: now}
		room := store.MaxClaimBytes
		for len(result.Tasks) < w.request.Max {
			e := l.due(letOut)
			if e == nil || len(e.task.Payload) > room && room < store.MaxClaimBytes {
				break
			}
			heap.Pop(&l.held)
			room -= len(e.task.Payload)
			result.Tasks = append(result.Tasks, l.hand(e, &w.request, now, conf))
		}
		result.Next = l.next(conf, now, l.due(letOut) != nil)
		w.answer <- result
	}
}

// begun ends the leases of a claim that was at most once: the tasks are gone from
// here on.
func (l *lane) begun(r *store.ClaimRequest, result *store.ClaimResult) error {
	if !r.AtMostOnce {
		return nil
	}
	settlements := make([]store.Settlement, len(result.Tasks))
	for i := range result.Tasks {
		t := &result.Tasks[i]
		settlements[i] = store.Settlement{Receipt: t.Receipt, Action: store.Ack}
		t.Receipt, t.LeaseUntil = "", time.Time{}
	}
	ctx, cancel := l.store.callContext()
	defer cancel()
	results, err := l.store.settle(ctx, settlements)
	if err != nil {
		return fmt.Errorf("claim at most once from %q: %w", l.queue, err)
	}
	kept := result.Tasks[:0]
	for i := range results {
		if results[i].Outcome == store.Acked {
			kept = append(kept, result.Tasks[i])
		}
	}
	result.Tasks = kept
	return nil
}

// release gives back what was claimed for somebody who has gone.
func (s *Store) release(result *store.ClaimResult) {
	settlements := make([]store.Settlement, len(result.Tasks))
	for i := range result.Tasks {
		settlements[i] = store.Settlement{Receipt: result.Tasks[i].Receipt, Action: store.Release}
	}
	ctx, cancel := s.callContext()
	defer cancel()
	_, _ = s.settle(ctx, settlements)
}
