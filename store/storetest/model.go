package storetest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// model is the contract once more, as plainly as can be: a list of tasks that is
// searched from end to end. It shares nothing with any store.
//
// Times that a store computes are not foretold but checked and taken over, so
// that the model follows a store whose clock runs.
type model struct {
	tasks    []*modelTask
	settings map[string]store.Settings // of the queues that exist
	seq      int
}

type modelTask struct {
	store.Task
	seq     int
	receipt store.Receipt
}

func newModel() *model { return &model{settings: make(map[string]store.Settings)} }

func (m *model) of(queue string) store.Settings {
	if s, ok := m.settings[queue]; ok {
		return s
	}
	return store.DefaultSettings()
}

func (m *model) find(queue, id string) *modelTask {
	for _, t := range m.tasks {
		if t.Queue == queue && t.ID == id {
			return t
		}
	}
	return nil
}

// holder is the task that a receipt is good for.
func (m *model) holder(r store.Receipt) *modelTask {
	for _, t := range m.tasks {
		if t.State == store.StateLeased && t.receipt == r {
			return t
		}
	}
	return nil
}

func (m *model) remove(t *modelTask) {
	m.tasks = slices.DeleteFunc(m.tasks, func(o *modelTask) bool { return o == t })
}

// tick brings the model to the present.
func (m *model) tick(now time.Time) {
	for _, t := range m.tasks {
		if t.State == store.StateLeased && !now.Before(t.LeaseUntil) {
			t.Lost++
			if t.Lost >= m.of(t.Queue).MaxLost {
				t.end(store.StateDead)
				t.LastError = "lease expired"
			} else {
				t.end(store.StateScheduled)
			}
		}
		if t.State == store.StateScheduled && !now.Before(t.Due) {
			t.State = store.StateReady
		}
		if t.State == store.StateReady && now.Before(t.Due) {
			t.State = store.StateScheduled
		}
	}
}

// end ends a lease.
func (t *modelTask) end(s store.State) {
	t.State, t.receipt, t.Worker, t.LeaseUntil = s, "", "", time.Time{}
}

func (m *model) schedule(n store.NewTask, due, created time.Time) store.Outcome {
	outcome, generation := store.Created, 0
	if old := m.find(n.Queue, n.ID); old != nil {
		if old.State != store.StateDead {
			if n.Conflict == store.ConflictKeep {
				return store.Exists
			}
			outcome, generation = store.Replaced, old.Generation+1
		}
		m.remove(old)
	}
	if _, ok := m.settings[n.Queue]; !ok {
		m.settings[n.Queue] = store.DefaultSettings()
	}
	m.seq++
	m.tasks = append(m.tasks, &modelTask{seq: m.seq, Task: store.Task{
		Queue: n.Queue, ID: n.ID, State: store.StateScheduled, Payload: bytes.Clone(n.Payload), Headers: maps.Clone(n.Headers),
		Due: due, Created: created, Generation: generation, MaxAttempts: n.MaxAttempts,
	}})
	return outcome
}

// take imports a task; created and due are as they are stored.
func (m *model) take(t store.Task) store.Outcome {
	if m.find(t.Queue, t.ID) != nil {
		return store.Exists
	}
	if _, ok := m.settings[t.Queue]; !ok {
		m.settings[t.Queue] = store.DefaultSettings()
	}
	m.seq++
	if t.State != store.StateDead {
		t.State = store.StateScheduled
	}
	m.tasks = append(m.tasks, &modelTask{seq: m.seq, Task: t})
	return store.Created
}

func (m *model) cancel(c store.CancelRequest) store.Outcome {
	t := m.find(c.Queue, c.ID)
	switch {
	case t == nil:
		return store.NotFound
	case t.State == store.StateLeased && !c.Force:
		return store.Leased
	}
	m.remove(t)
	return store.Cancelled
}

func (m *model) reschedule(r store.RescheduleRequest, due time.Time) store.Outcome {
	t := m.find(r.Queue, r.ID)
	switch {
	case t == nil || t.State == store.StateDead:
		return store.NotFound
	case t.State == store.StateLeased:
		return store.Leased
	}
	t.Due = due
	return store.Rescheduled
}

// settle takes over due: the due time or the end of the lease that the store
// says.
func (m *model) settle(s store.Settlement, due time.Time) store.Outcome {
	t := m.holder(s.Receipt)
	if t == nil {
		return store.Stale
	}
	switch s.Action {
	case store.Ack:
		m.remove(t)
		return store.Acked
	case store.Retry:
		limit := t.MaxAttempts
		if limit == 0 {
			limit = m.of(t.Queue).MaxAttempts
		}
		t.Failures++
		t.LastError = s.Error
		if t.Failures >= limit {
			t.end(store.StateDead)
			return store.Dead
		}
		t.end(store.StateScheduled)
		t.Due = due
		return store.Retrying
	case store.Snooze:
		t.end(store.StateScheduled)
		t.Due = due
		return store.Snoozed
	case store.Bury:
		t.end(store.StateDead)
		t.LastError = s.Error
		return store.Dead
	case store.Release:
		t.end(store.StateScheduled)
		return store.Released
	default:
		t.LeaseUntil = due
		return store.Extended
	}
}

// in lists a state, in the order in which List and Claim have it.
func (m *model) in(queue string, state store.State) []*modelTask {
	var found []*modelTask
	for _, t := range m.tasks {
		if t.Queue == queue && t.State == state {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b *modelTask) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.seq, b.seq))
	})
	return found
}

// every is the queue's release setting as a duration; 0 means immediate.
func (m *model) every(queue string) time.Duration {
	var d time.Duration
	if s := m.of(queue).Release; s != store.ReleaseImmediate {
		d, _ = time.ParseDuration(s[len("every "):])
	}
	return d
}

// claimable lists what a claim may get, in order.
func (m *model) claimable(queue string, now time.Time) []*modelTask {
	if m.of(queue).Paused {
		return nil
	}
	letOut := now
	if d := m.every(queue); d > 0 {
		letOut = time.UnixMilli(now.UnixMilli() / d.Milliseconds() * d.Milliseconds())
	}
	ready := m.in(queue, store.StateReady)
	return slices.DeleteFunc(ready, func(t *modelTask) bool { return t.Due.After(letOut) })
}

// next is when a claim may get something, where it gets nothing now.
func (m *model) next(queue string) (next time.Time) {
	for _, t := range m.tasks {
		if t.Queue != queue || t.State == store.StateDead {
			continue
		}
		at := t.Due
		if t.State == store.StateLeased {
			at = t.LeaseUntil
		} else if d := m.every(queue).Milliseconds(); d > 0 {
			at = time.UnixMilli((t.Due.UnixMilli() + d - 1) / d * d)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (m *model) stats(queue string) store.Stats {
	ready, scheduled := m.in(queue, store.StateReady), m.in(queue, store.StateScheduled)
	s := store.Stats{
		Scheduled: int64(len(scheduled)),
		Ready:     int64(len(ready)),
		Leased:    int64(len(m.in(queue, store.StateLeased))),
		Dead:      int64(len(m.in(queue, store.StateDead))),
	}
	if len(ready) > 0 {
		s.OldestDue = ready[0].Due
	}
	if len(scheduled) > 0 {
		s.NextDue = scheduled[0].Due
	}
	return s
}
