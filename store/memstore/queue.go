package memstore

import (
	"bytes"
	"maps"
	"time"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// task is a task as the store keeps it. Task.State is StateScheduled, StateLeased
// or StateDead; view tells the ready from the scheduled.
type task struct {
	store.Task
	seq   uint64 // the order of scheduling
	token uint64 // of the newest lease
}

func (t *task) byDue() key   { return key{t.Due.UnixMilli(), t.seq} }
func (t *task) byLease() key { return key{t.LeaseUntil.UnixMilli(), t.seq} }

// view is a copy for a caller.
func (t *task) view(now time.Time, payloads bool) store.Task {
	v := t.Task
	if v.State == store.StateScheduled && !v.Due.After(now) {
		v.State = store.StateReady
	}
	if payloads {
		v.Payload, v.Headers = bytes.Clone(v.Payload), maps.Clone(v.Headers)
	} else {
		v.Payload, v.Headers = nil, nil
	}
	return v
}

// queue has each of its tasks in tasks and in the order of its state; a leased
// one also in leases, by the end of its lease.
type queue struct {
	name     string
	settings store.Settings
	release  *release.Schedule
	wakers   *wakers

	tasks   map[string]*task
	waiting order // scheduled and ready
	leased  order
	leases  order
	dead    order
}

func newQueue(name string, w *wakers) *queue {
	q := &queue{name: name, wakers: w, settings: store.DefaultSettings(), tasks: make(map[string]*task)}
	var err error
	if q.release, err = release.Parse(q.settings.Release); err != nil {
		panic(err) // the default is wrong: a mistake in this program
	}
	return q
}

func (q *queue) order(s store.State) *order {
	switch s {
	case store.StateLeased:
		return &q.leased
	case store.StateDead:
		return &q.dead
	default:
		return &q.waiting
	}
}

// add puts a task in, in the state that it says. Where it becomes the first of
// those that wait, sleepers may have to wake earlier than they meant to.
func (q *queue) add(t *task) {
	if t.State != store.StateLeased {
		t.Worker, t.LeaseUntil, t.token = "", time.Time{}, 0
	}
	q.tasks[t.ID] = t
	q.order(t.State).insert(t.byDue(), t)
	switch t.State {
	case store.StateLeased:
		q.leases.insert(t.byLease(), t)
	case store.StateScheduled:
		if q.waiting.first() == t {
			q.wakers.tick(q.name)
		}
	}
}

// remove takes a task out. It must come before any change to the task's state,
// due time or lease.
func (q *queue) remove(t *task) {
	delete(q.tasks, t.ID)
	q.order(t.State).remove(t.byDue())
	if t.State == store.StateLeased {
		q.leases.remove(t.byLease())
	}
}

// expire ends the leases whose time is over.
func (q *queue) expire(now time.Time) {
	for {
		t := q.leases.first()
		if t == nil || t.LeaseUntil.After(now) {
			return
		}
		q.remove(t)
		t.Lost++
		t.State = store.StateScheduled
		if t.Lost >= q.settings.MaxLost {
			t.State, t.LastError = store.StateDead, "lease expired"
		}
		q.add(t)
	}
}

// letOut is the latest instant whose tasks may go out now; zero where none may.
func (q *queue) letOut(now time.Time) time.Time {
	if q.settings.Paused {
		return time.Time{}
	}
	return q.release.Last(now)
}

// next is when a claim might get something; see store.ClaimResult.Next.
func (q *queue) next(now time.Time) time.Time {
	if q.settings.Paused {
		return time.Time{}
	}
	var next time.Time
	if t := q.waiting.first(); t != nil {
		if !t.Due.After(q.letOut(now)) {
			return now
		}
		next = q.release.Next(t.Due)
	}
	if t := q.leases.first(); t != nil && (next.IsZero() || t.LeaseUntil.Before(next)) {
		next = t.LeaseUntil
	}
	return next
}
