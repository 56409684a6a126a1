package rabbitstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime/internal/backoff"
	"github.com/duetime/duetime/store"
)

// Settle implements store.Store. What comes back later, or is buried, is published
// anew and confirmed, and only then acked: if the process dies in between there
// are two of it, of which the older counts as lost once more. Nothing lies
// between the two steps but the way to the broker.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	if err := s.begin(ctx, len(settlements)); err != nil {
		return nil, err
	}
	defer s.end()
	return s.settle(ctx, settlements)
}

// settling is a lease on its way out.
type settling struct {
	lane   *lane
	token  uint64
	lease  *lease
	letter *letter // nil: it is only acked
	index  int
}

func (s *Store) settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	results := make([]store.Result, len(settlements))
	var leaving []*settling
	letters := make(map[string][]*letter) // by queue
	for i := range settlements {
		leave := s.settleOne(&settlements[i], &results[i])
		if leave == nil {
			continue
		}
		leave.index = i
		leaving = append(leaving, leave)
		if leave.letter != nil {
			letters[leave.lane.queue] = append(letters[leave.lane.queue], leave.letter)
		}
	}
	if len(leaving) == 0 {
		return results, nil
	}
	for queue, list := range letters {
		if err := s.deliver(ctx, queue, list); err != nil {
			keep(leaving)
			return nil, fmt.Errorf("settle: %w", err)
		}
	}
	acks := make(map[*source][]uint64)
	for i, leave := range leaving {
		if leave.letter != nil && leave.letter.err != nil {
			results[leave.index] = store.Result{Err: full(leave.letter.err)}
			keep(leaving[i : i+1])
			continue
		}
		acks[leave.lease.src] = append(acks[leave.lease.src], leave.lease.tag)
	}
	var err error
	for src, tags := range acks {
		e := src.ack(tags)
		if e == nil {
			e = src.barrier()
		}
		if e != nil {
			err = e
		}
	}
	lanes := make(map[*lane]bool)
	for _, leave := range leaving {
		if leave.letter == nil || leave.letter.err == nil {
			leave.lane.mu.Lock()
			leave.lane.drop(&leave.lease.entry)
			leave.lane.mu.Unlock()
			lanes[leave.lane] = true
		}
	}
	for l := range lanes {
		l.wakePump()
		s.wakers.tick(l.queue)
	}
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	return results, nil
}

// keep puts leases back that could not be settled, so that it can be tried again.
func keep(list []*settling) {
	for _, leave := range list {
		l := leave.lane
		l.mu.Lock()
		if !leave.lease.src.closed {
			l.leases[leave.token] = leave.lease
			l.endsAt(leave.token, leave.lease.until)
			l.startPump()
		}
		l.mu.Unlock()
	}
}

// settleOne does what can be done without the broker. It returns the lease where
// there is more to do, and has taken it from the lane then, so that no other call
// settles it too.
func (s *Store) settleOne(m *store.Settlement, result *store.Result) *settling {
	parts, err := m.Receipt.Parse()
	now := s.now()
	if err == nil {
		err = m.Check(now)
	}
	if err != nil {
		result.Err = err
		return nil
	}
	result.Outcome = store.Stale
	l := s.existing(parts.Queue)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[parts.Token]
	if held == nil || held.task.ID != parts.ID || !held.until.After(now) || held.src.closed {
		return nil
	}
	conf := s.conf.of(parts.Queue)
	leave := &settling{lane: l, token: parts.Token, lease: held}
	t := held.task
	var due time.Time
	switch {
	case m.Action == store.Extend:
		lease := m.Lease
		if lease == 0 {
			lease = conf.settings.Lease
		}
		until := store.CeilMilli(now.Add(lease))
		sooner := until.Before(held.until)
		l.endsAt(parts.Token, until)
		*result = store.Result{Outcome: store.Extended, At: until}
		if sooner {
			l.wakePump()
			s.wakers.tick(l.queue)
		}
		return nil
	case m.Action == store.Retry && m.Backoff:
		delay := backoff.Delay(conf.settings.Backoff, t.Attempt(), rand.Float64)
		if due, err = store.DueTime(now, time.Time{}, delay); err != nil {
			due = store.MaxTime
		}
	case m.Action == store.Retry || m.Action == store.Snooze:
		if due, err = store.DueTime(now, time.Time{}, m.Delay); err != nil {
			*result = store.Result{Err: err}
			return nil
		}
	}
	switch m.Action {
	case store.Ack:
		result.Outcome = store.Acked
	case store.Retry:
		t.Failures++
		t.LastError = store.CleanError(m.Error)
		limit := t.MaxAttempts
		if limit == 0 {
			limit = conf.settings.MaxAttempts
		}
		if t.Failures >= limit {
			result.Outcome = store.Dead
			leave.letter = &letter{key: s.topology.dead(l.queue), message: encode(&t)}
			break
		}
		t.Due = due
		*result = store.Result{Outcome: store.Retrying, Due: due}
		leave.letter = s.letter(&t, due.Sub(now))
	case store.Snooze:
		t.Due = due
		*result = store.Result{Outcome: store.Snoozed, Due: due}
		leave.letter = s.letter(&t, due.Sub(now))
	case store.Bury:
		t.LastError = store.CleanError(m.Error)
		result.Outcome = store.Dead
		leave.letter = &letter{key: s.topology.dead(l.queue), message: encode(&t)}
	case store.Release:
		result.Outcome = store.Released
		leave.letter = s.letter(&t, 0)
	}
	delete(l.leases, parts.Token)
	return leave
}
