package memstore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime/internal/backoff"
	"github.com/duetime/duetime/store"
)

// Claim implements store.Store. The bound on bytes is of the whole call.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	now, err := s.begin(ctx, len(requests))
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]store.ClaimResult, len(requests))
	room := store.MaxClaimBytes
	for i := range requests {
		results[i] = s.claim(&requests[i], now, &room)
	}
	return results, nil
}

func (s *Store) claim(r *store.ClaimRequest, now time.Time, room *int) store.ClaimResult {
	result := store.ClaimResult{Now: now}
	if result.Err = r.Check(); result.Err != nil {
		return result
	}
	q := s.queue(r.Queue, now)
	if q == nil {
		return result
	}
	letOut := q.letOut(now)
	if s.ahead > 0 && !r.AtMostOnce && !letOut.IsZero() && q.settings.Release == store.ReleaseImmediate {
		letOut = letOut.Add(r.Ahead)
	}
	for len(result.Tasks) < r.Max {
		t := q.waiting.first()
		if t == nil || t.Due.After(letOut) {
			break
		}
		// One task always fits, or it would never go out.
		if len(t.Payload) > *room && *room < store.MaxClaimBytes {
			break
		}
		*room -= len(t.Payload)
		result.Tasks = append(result.Tasks, s.lease(q, t, r, now))
	}
	result.Next = q.next(now)
	return result
}

func (s *Store) lease(q *queue, t *task, r *store.ClaimRequest, now time.Time) store.Lease {
	q.remove(t)
	t.State, t.Worker = store.StateLeased, store.CleanWorker(r.Worker)
	if r.AtMostOnce {
		return store.Lease{Task: t.view(now, true), ClaimedAt: now}
	}
	s.token++
	t.token = s.token
	t.LeaseUntil = q.leaseEnd(now, r.Lease)
	if t.Due.After(now) {
		t.LeaseUntil = q.leaseEnd(t.Due, r.Lease)
	}
	q.add(t)
	receipt := store.ReceiptParts{
		Queue:      t.Queue,
		ID:         t.ID,
		Generation: uint32(t.Generation),
		Attempt:    uint32(t.Attempt()),
		Token:      t.token,
	}
	return store.Lease{Task: t.view(now, true), Receipt: receipt.Encode(), ClaimedAt: now}
}

// leaseEnd is when a lease ends that is asked for now; 0 means the queue's.
func (q *queue) leaseEnd(now time.Time, lease time.Duration) time.Time {
	if lease == 0 {
		lease = q.settings.Lease
	}
	return store.CeilMilli(now.Add(lease))
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	now, err := s.begin(ctx, len(settlements))
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]store.Result, len(settlements))
	for i := range settlements {
		results[i] = s.settle(&settlements[i], now)
	}
	return results, nil
}

func (s *Store) settle(m *store.Settlement, now time.Time) store.Result {
	parts, err := m.Receipt.Parse()
	if err == nil {
		err = m.Check(now)
	}
	if err != nil {
		return refused(err)
	}
	q := s.queue(parts.Queue, now)
	if q == nil {
		return store.Result{Outcome: store.Stale}
	}
	t := q.tasks[parts.ID]
	if t == nil || t.State != store.StateLeased || t.token != parts.Token {
		return store.Result{Outcome: store.Stale}
	}
	var due time.Time // after Retry and Snooze
	switch {
	case m.Action == store.Retry && m.Backoff:
		delay := backoff.Delay(q.settings.Backoff, t.Attempt(), rand.Float64)
		if due, err = store.DueTime(now, time.Time{}, delay); err != nil {
			due = store.MaxTime
		}
	case m.Action == store.Retry || m.Action == store.Snooze:
		if due, err = store.DueTime(now, time.Time{}, m.Delay); err != nil {
			return refused(err)
		}
	}

	q.remove(t)
	switch m.Action {
	case store.Ack:
		return store.Result{Outcome: store.Acked}
	case store.Retry:
		t.Failures++
		t.LastError = store.CleanError(m.Error)
		if limit := q.maxAttempts(t); t.Failures >= limit {
			t.State = store.StateDead
			q.add(t)
			return store.Result{Outcome: store.Dead}
		}
		t.State, t.Due = store.StateScheduled, due
		q.add(t)
		return store.Result{Outcome: store.Retrying, Due: due}
	case store.Snooze:
		t.State, t.Due = store.StateScheduled, due
		q.add(t)
		return store.Result{Outcome: store.Snoozed, Due: due}
	case store.Bury:
		t.State, t.LastError = store.StateDead, store.CleanError(m.Error)
		q.add(t)
		return store.Result{Outcome: store.Dead}
	case store.Release:
		t.State = store.StateScheduled
		q.add(t)
		return store.Result{Outcome: store.Released}
	default: // store.Extend: Check knows no other
		before := t.LeaseUntil
		t.LeaseUntil = q.leaseEnd(now, m.Lease)
		q.add(t)
		if t.LeaseUntil.Before(before) {
			q.wakers.tick(q.name)
		}
		return store.Result{Outcome: store.Extended, At: t.LeaseUntil}
	}
}

func (q *queue) maxAttempts(t *task) int {
	if t.MaxAttempts > 0 {
		return t.MaxAttempts
	}
	return q.settings.MaxAttempts
}
