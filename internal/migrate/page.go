package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/duetime/duetime/store"
)

// movePage moves one page of tasks; see the package comment for the steps.
func (q *queueMover) movePage(work context.Context, tasks []store.Task) error {
	q.journal.Phase, q.journal.Tasks = copying, make([]entry, len(tasks))
	for i := range tasks {
		q.journal.Tasks[i] = entryOf(&tasks[i])
	}
	if err := q.writeJournal(work); err != nil {
		return err
	}
	tasks, err := q.copyHeld(work, tasks)
	if err != nil || len(tasks) == 0 {
		return err
	}
	if tasks, err = q.takeBackChanged(work, tasks); err != nil || len(tasks) == 0 {
		return err
	}
	q.journal.Phase, q.journal.Tasks = moving, q.journal.Tasks[:len(tasks)]
	for i := range tasks {
		q.journal.Tasks[i] = entryOf(&tasks[i])
	}
	if err := q.writeJournal(work); err != nil {
		return err
	}
	moved, err := q.cancelAtSource(work, tasks)
	if err != nil {
		return err
	}
	var live []entry
	for i := range moved {
		e := entryOf(&moved[i])
		if e.Dead {
			q.report.Dead++
		} else {
			q.report.Live++
			live = append(live, e)
		}
	}
	q.progress.Done += int64(len(moved))
	return q.letGo(work, live)
}

// copyHeld imports tasks into the destination, held, and returns those that it has
// taken.
func (q *queueMover) copyHeld(work context.Context, tasks []store.Task) ([]store.Task, error) {
	var results []store.Result
	var err error
	if q.importer != nil {
		held := make([]store.Task, len(tasks))
		for i := range tasks {
			if held[i] = tasks[i]; tasks[i].State != store.StateDead {
				held[i].Due = q.journal.Hold
			}
		}
		results, err = q.importer.Import(work, held)
	} else {
		q.report.CountersLost = true
		held := make([]store.NewTask, len(tasks))
		for i := range tasks {
			t := &tasks[i]
			held[i] = store.NewTask{Queue: t.Queue, ID: t.ID, Payload: t.Payload, Headers: t.Headers, MaxAttempts: t.MaxAttempts, Due: q.journal.Hold}
		}
		results, err = q.to.Schedule(work, held)
	}
	if err != nil {
		return nil, fmt.Errorf("at the destination: %w", err)
	}
	if len(results) != len(tasks) {
		return nil, fmt.Errorf("the destination gave %d results for %d tasks", len(results), len(tasks))
	}
	var taken []store.Task
	for i, r := range results {
		switch e := entryOf(&tasks[i]); {
		case r.Outcome == store.Created,
			// By this very call, whose answer was lost and which was made again.
			r.Outcome == store.Exists && q.isOurs(&e, r.Task):
			taken = append(taken, tasks[i])
		case r.Outcome == store.Exists:
			q.stay(tasks[i].ID, "its id is in use at the destination")
		default:
			if errors.Is(r.Err, store.ErrFull) {
				return nil, fmt.Errorf("the destination is full: %w", r.Err)
			}
			q.stay(tasks[i].ID, fmt.Sprintf("the destination refuses it: %v", r.Err))
		}
	}
	return taken, nil
}

// takeBackChanged compares tasks with what the source has now, takes back the
// copies of those that have changed, and returns the others. What has changed is
// found by a later pass.
func (q *queueMover) takeBackChanged(work context.Context, tasks []store.Task) ([]store.Task, error) {
	now, err := q.from.Get(work, keys(q.name, tasks))
	if err != nil {
		return nil, err
	}
	var unchanged, changed []store.Task
	for i := range tasks {
		if t := now[i].Task; now[i].Outcome == store.Found && unaltered(&tasks[i], t) {
			unchanged = append(unchanged, tasks[i])
		} else {
			changed = append(changed, tasks[i])
		}
	}
	return unchanged, q.takeBack(work, entries(changed))
}

// unaltered says that a task is as it was listed, but that it may have become
// ready by now.
func unaltered(listed, now *store.Task) bool {
	waits := func(s store.State) bool { return s == store.StateScheduled || s == store.StateReady }
	return (listed.State == now.State || waits(listed.State) && waits(now.State)) &&
		listed.Due.Equal(now.Due) && listed.Created.Equal(now.Created) && listed.Generation == now.Generation &&
		listed.Failures == now.Failures && listed.Lost == now.Lost && listed.MaxAttempts == now.MaxAttempts &&
		bytes.Equal(listed.Payload, now.Payload) && maps.Equal(listed.Headers, now.Headers)
}

// cancelAtSource returns the tasks that were there to be cancelled: the others,
// somebody else has cancelled just before, and their copies are taken back.
func (q *queueMover) cancelAtSource(work context.Context, tasks []store.Task) ([]store.Task, error) {
	requests := make([]store.CancelRequest, len(tasks))
	for i := range tasks {
		requests[i] = store.CancelRequest{Queue: q.name, ID: tasks[i].ID}
	}
	results, err := q.from.Cancel(work, requests)
	if err != nil {
		return nil, err
	}
	var moved, others []store.Task
	for i, r := range results {
		switch r.Outcome {
		case store.Cancelled:
			moved = append(moved, tasks[i])
		case store.NotFound, store.Leased:
			others = append(others, tasks[i])
		default:
			return nil, fmt.Errorf("task %q can not be cancelled at the source: %v: %w", tasks[i].ID, r.Outcome, r.Err)
		}
	}
	return moved, q.takeBack(work, entries(others))
}

// takeBack removes copies from the destination, if they are this move's and nobody
// has done anything about them.
func (q *queueMover) takeBack(work context.Context, es []entry) error {
	ours, err := q.ours(work, es)
	if err != nil || len(ours) == 0 {
		return err
	}
	requests := make([]store.CancelRequest, len(ours))
	for i := range ours {
		requests[i] = store.CancelRequest{Queue: q.name, ID: ours[i].ID}
	}
	_, err = q.to.Cancel(work, requests)
	return err
}

// letGo gives copies that are held their own due time, in the order of the source.
func (q *queueMover) letGo(work context.Context, es []entry) error {
	ours, err := q.ours(work, es)
	if err != nil || len(ours) == 0 {
		return err
	}
	requests := make([]store.RescheduleRequest, len(ours))
	for i := range ours {
		requests[i] = store.RescheduleRequest{Queue: q.name, ID: ours[i].ID, Due: ours[i].due()}
	}
	results, err := q.to.Reschedule(work, requests)
	if err != nil {
		return fmt.Errorf("at the destination: %w", err)
	}
	for i, r := range results {
		if r.Outcome == store.Refused {
			return fmt.Errorf("at the destination, task %q can not be given its due time: %w", ours[i].ID, r.Err)
		}
	}
	return nil
}

// ours are those whose copy is at the destination, and still as it was copied.
func (q *queueMover) ours(work context.Context, es []entry) ([]entry, error) {
	if len(es) == 0 {
		return nil, nil
	}
	ks := make([]store.Key, len(es))
	for i := range es {
		ks[i] = store.Key{Queue: q.name, ID: es[i].ID}
	}
	results, err := q.to.Get(work, ks)
	if err != nil {
		return nil, fmt.Errorf("at the destination: %w", err)
	}
	var ours []entry
	for i, r := range results {
		if r.Outcome == store.Found && q.isOurs(&es[i], r.Task) {
			ours = append(ours, es[i])
		}
	}
	return ours, nil
}

// isOurs says that a task at the destination is the copy of an entry.
func (q *queueMover) isOurs(e *entry, t *store.Task) bool {
	if e.Dead {
		return t.State == store.StateDead && t.Due.Equal(e.due()) && e.same(t)
	}
	return t.State == store.StateScheduled && t.Due.Equal(q.journal.Hold)
}

// recover brings a page in order that was on its way when a move was broken off.
func (q *queueMover) recover(work context.Context) error {
	switch es := q.journal.Tasks; q.journal.Phase {
	case "":
		return nil
	case copying:
		// What is at the source is listed again. What is not there any more was
		// cancelled by somebody else.
		return q.takeBack(work, es)
	case moving:
		if len(es) == 0 {
			return nil
		}
		ks := make([]store.Key, len(es))
		for i := range es {
			ks[i] = store.Key{Queue: q.name, ID: es[i].ID}
		}
		there, err := q.from.Get(work, ks)
		if err != nil {
			return err
		}
		var moved, kept []entry
		for i, r := range there {
			if r.Outcome == store.Found && es[i].same(r.Task) {
				kept = append(kept, es[i])
			} else if !es[i].Dead {
				moved = append(moved, es[i])
			}
		}
		if err := q.takeBack(work, kept); err != nil {
			return err
		}
		return q.letGo(work, moved)
	default:
		return fmt.Errorf("the journal of a move has phase %q, which this program does not know", q.journal.Phase)
	}
}

func keys(queue string, tasks []store.Task) []store.Key {
	ks := make([]store.Key, len(tasks))
	for i := range tasks {
		ks[i] = store.Key{Queue: queue, ID: tasks[i].ID}
	}
	return ks
}

func entries(tasks []store.Task) []entry {
	es := make([]entry, len(tasks))
	for i := range tasks {
		es[i] = entryOf(&tasks[i])
	}
	return es
}
