package mysqlstore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime/internal/backoff"
	"github.com/duetime/duetime/store"
)

// byIDSlice is how many tasks a transaction that is given ids changes.
const byIDSlice = keysPerStatement

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	if err := s.enter(ctx, len(tasks)); err != nil {
		return nil, err
	}
	defer s.leave()
	keys := make([]store.Key, len(tasks))
	for i, t := range tasks {
		keys[i] = store.Key{Queue: t.Queue, ID: t.ID}
	}
	return s.edit(ctx, keys, nil, func(i int, e *edit, _ *view, _ time.Time) store.Result {
		switch {
		case e == nil:
			return store.Result{Outcome: store.NotFound}
		case e.state == leased && !tasks[i].Force:
			return store.Result{Outcome: store.Leased}
		}
		e.gone = true
		return store.Result{Outcome: store.Cancelled}
	})
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	if err := s.enter(ctx, len(tasks)); err != nil {
		return nil, err
	}
	defer s.leave()
	keys := make([]store.Key, len(tasks))
	check := func(i int) error {
		_, err := store.DueTime(s.guess(), tasks[i].Due, tasks[i].Delay)
		return err
	}
	for i, t := range tasks {
		keys[i] = store.Key{Queue: t.Queue, ID: t.ID}
	}
	return s.edit(ctx, keys, check, func(i int, e *edit, _ *view, now time.Time) store.Result {
		due, err := store.DueTime(now, tasks[i].Due, tasks[i].Delay)
		switch {
		case err != nil:
			return refused(err)
		case e == nil || e.state == dead:
			return store.Result{Outcome: store.NotFound}
		case e.state == leased:
			return store.Result{Outcome: store.Leased}
		}
		e.wait(due.UnixMilli())
		return store.Result{Outcome: store.Rescheduled, Due: due}
	})
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	if err := s.enter(ctx, len(settlements)); err != nil {
		return nil, err
	}
	defer s.leave()
	keys := make([]store.Key, len(settlements))
	parts := make([]store.ReceiptParts, len(settlements))
	wrong := make([]error, len(settlements))
	for i := range settlements {
		m := &settlements[i]
		if parts[i], wrong[i] = m.Receipt.Parse(); wrong[i] == nil {
			wrong[i] = m.Check(s.guess())
		}
		keys[i] = store.Key{Queue: parts[i].Queue, ID: parts[i].ID}
	}
	results := make([]store.Result, len(settlements))
	some, err := s.ackSlices(ctx, settlements, parts, wrong, results)
	if err != nil {
		return nil, err
	}
	if len(settlements) == 0 || len(some) == 0 {
		return results, nil
	}
	check := func(i int) error { return wrong[i] }
	return results, s.editSome(ctx, some, keys, results, check, func(i int, e *edit, v *view, now time.Time) store.Result {
		seq, token := seqAndToken(&parts[i])
		if e == nil || e.state != leased || e.seq != seq || e.token != token {
			return store.Result{Outcome: store.Stale}
		}
		return settle(&settlements[i], e, v, now)
	})
}

// settle does to a task what its holder says.
func settle(m *store.Settlement, e *edit, v *view, now time.Time) store.Result {
	var due time.Time
	var err error
	switch {
	case m.Action == store.Retry && m.Backoff:
		delay := backoff.Delay(v.Backoff, e.failures+e.lost+1, rand.Float64)
		if due, err = store.DueTime(now, time.Time{}, delay); err != nil {
			due = store.MaxTime
		}
	case m.Action == store.Retry || m.Action == store.Snooze:
		if due, err = store.DueTime(now, time.Time{}, m.Delay); err != nil {
			return refused(err)
		}
	}
	switch m.Action {
	case store.Ack:
		e.gone = true
		return store.Result{Outcome: store.Acked}
	case store.Retry:
		e.failures++
		e.lastError = store.CleanError(m.Error)
		limit := e.limit
		if limit == 0 {
			limit = v.MaxAttempts
		}
		if e.failures >= limit {
			e.end(dead)
			return store.Result{Outcome: store.Dead}
		}
		e.end(waiting)
		e.wait(due.UnixMilli())
		return store.Result{Outcome: store.Retrying, Due: due}
	case store.Snooze:
		e.end(waiting)
		e.wait(due.UnixMilli())
		return store.Result{Outcome: store.Snoozed, Due: due}
	case store.Bury:
		e.lastError = store.CleanError(m.Error)
		e.end(dead)
		return store.Result{Outcome: store.Dead}
	case store.Release:
		e.end(waiting)
		return store.Result{Outcome: store.Released}
	default: // store.Extend: Check knows no other
		e.at = v.leaseEnd(now, 0, m.Lease)
		return store.Result{Outcome: store.Extended, At: milli(e.at)}
	}
}

// edit changes tasks by id, in slices, each a transaction. check says what is
// wrong with an item before the store is asked; nil is for nothing. change is
// called for the items in their order, with the task as it then is, nil where there
// is none, again if a transaction has to be repeated.
func (s *Store) edit(ctx context.Context, keys []store.Key, check func(int) error, change changer) ([]store.Result, error) {
	results := make([]store.Result, len(keys))
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	if err := s.editSome(ctx, all, keys, results, check, change); err != nil {
		return nil, err
	}
	return results, nil
}

type changer func(int, *edit, *view, time.Time) store.Result

// editSome is edit for some of the items.
func (s *Store) editSome(ctx context.Context, some []int, keys []store.Key, results []store.Result, check func(int) error, change changer) error {
	names := make(map[string]bool)
	good := make([]int, 0, len(some))
	for _, i := range some {
		k := keys[i]
		var err error
		if check != nil {
			err = check(i)
		}
		if err == nil {
			err = store.CheckKey(k.Queue, k.ID)
		}
		if err != nil {
			results[i] = refused(err)
			continue
		}
		names[k.Queue] = true
		good = append(good, i)
	}
	found, err := s.find(ctx, names)
	if err != nil {
		return err
	}
	there := good[:0]
	for _, i := range good {
		if found[keys[i].Queue] == nil {
			results[i] = change(i, nil, nil, s.guess())
			continue
		}
		there = append(there, i)
	}
	for len(there) > 0 {
		n := min(len(there), byIDSlice)
		slice := there[:n]
		err := s.with(ctx, func(ctx context.Context, l *link) error {
			return s.editSlice(ctx, l, slice, keys, found, results, change)
		})
		if err != nil {
			return err
		}
		there = there[n:]
	}
	return nil
}

func (s *Store) editSlice(ctx context.Context, l *link, slice []int, keys []store.Key, found map[string]*queue,
	results []store.Result, change changer,
) error {
	list := make([]taskKey, len(slice))
	for n, i := range slice {
		list[n] = taskKey{found[keys[i].Queue].id, keys[i].ID}
	}
	views := make(map[uint32]*view)
	edits, err := l.lock(ctx, list, views)
	if err != nil {
		return err
	}
	by := make(map[taskKey]*edit, len(edits))
	for _, e := range edits {
		if e.expired(l.now) {
			e.expire(views[e.queueID].MaxLost)
		}
		by[taskKey{e.queueID, e.id}] = e
	}
	for n, i := range slice {
		e := by[list[n]]
		if e != nil && e.gone {
			e = nil
		}
		results[i] = change(i, e, views[list[n].queueID], l.now)
	}
	counts := countEdits(edits, views)
	l.write(edits)
	if len(l.text) == 0 { // nothing changes
		return l.undo(ctx)
	}
	l.tally(counts)
	l.commit()
	if err := l.send(ctx); err != nil {
		return err
	}
	s.told(counts, views)
	return nil
}
