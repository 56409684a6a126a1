package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

// target is the store that tasks go to.
type target struct {
	store    store.Store
	importer store.Importer // nil: it has none
	queue    string
	replace  bool
	hold     time.Time
}

// unwanted is an entry that the store does not take.
type unwanted struct {
	Entry
	err error
}

var errInUse = errors.New("its id is in use in the store")

func (t *target) open(ctx context.Context, st store.Store, opts Options) error {
	t.store, t.queue, t.replace = st, opts.Queue, opts.Replace
	c := st.Capabilities()
	for _, need := range []struct {
		has bool
		can string
	}{{c.Get, "look tasks up"}, {c.Reschedule, "reschedule tasks"}, {c.UniqueIDs, "tell tasks apart by id"}} {
		if !need.has {
			return fmt.Errorf("a %s store can not %s, so that nothing can be taken over into it: %w", c.Name, need.can, store.ErrUnsupported)
		}
	}
	var err error
	if t.importer, err = store.ImporterOf(ctx, st); errors.Is(err, store.ErrUnsupported) {
		err = nil
	}
	return err
}

// put puts entries into the store, held. What was there already because an earlier
// run has put it there is as good as put.
func (t *target) put(ctx context.Context, entries []Entry) (put []Entry, no []unwanted, err error) {
	if len(entries) == 0 {
		return nil, nil, nil
	}
	results, err := t.send(ctx, entries)
	if err != nil {
		return nil, nil, err
	}
	var again []Entry
	for i, r := range results {
		e := entries[i]
		switch {
		case r.Outcome == store.Created || r.Outcome == store.Exists && t.held(r.Task):
			put = append(put, e)
		case r.Outcome == store.Exists && (t.replace || r.Task.State == store.StateDead):
			again = append(again, e)
		case r.Outcome == store.Exists:
			no = append(no, unwanted{e, errInUse})
		default:
			no = append(no, unwanted{e, r.Err})
		}
	}
	if len(again) == 0 {
		return put, no, nil
	}
	conflict := store.ConflictKeep // a dead task is no obstacle
	if t.replace {
		conflict = store.ConflictReplace
	}
	if results, err = t.schedule(ctx, again, conflict); err != nil {
		return nil, nil, err
	}
	for i, r := range results {
		switch {
		case r.Outcome == store.Created || r.Outcome == store.Replaced || r.Outcome == store.Exists && t.held(r.Task):
			put = append(put, again[i])
		case r.Outcome == store.Exists:
			no = append(no, unwanted{again[i], errInUse})
		default:
			no = append(no, unwanted{again[i], r.Err})
		}
	}
	return put, no, nil
}

func (t *target) held(task *store.Task) bool {
	return task != nil && task.State == store.StateScheduled && task.Due.Equal(t.hold)
}

func (t *target) send(ctx context.Context, entries []Entry) ([]store.Result, error) {
	if t.importer == nil {
		return t.schedule(ctx, entries, store.ConflictKeep)
	}
	now := time.Now()
	tasks := make([]store.Task, len(entries))
	for i, e := range entries {
		tasks[i] = store.Task{Queue: t.queue, ID: e.ID, State: store.StateScheduled, Payload: e.Payload, Due: t.hold, Created: e.Created}
		if e.Created.IsZero() {
			tasks[i].Created = now
		}
	}
	return t.importer.Import(ctx, tasks)
}

func (t *target) schedule(ctx context.Context, entries []Entry, conflict store.Conflict) ([]store.Result, error) {
	tasks := make([]store.NewTask, len(entries))
	for i, e := range entries {
		tasks[i] = store.NewTask{Queue: t.queue, ID: e.ID, Payload: e.Payload, Due: t.hold, Conflict: conflict}
	}
	return t.store.Schedule(ctx, tasks)
}

// stillHeld says which entries are in the store and held.
func (t *target) stillHeld(ctx context.Context, entries []Entry) ([]Entry, error) {
	keys := make([]store.Key, len(entries))
	for i, e := range entries {
		keys[i] = store.Key{Queue: t.queue, ID: e.ID}
	}
	found, err := t.store.Get(ctx, keys)
	if err != nil {
		return nil, err
	}
	var held []Entry
	for i, r := range found {
		if r.Outcome == store.Found && t.held(r.Task) {
			held = append(held, entries[i])
		}
	}
	return held, nil
}

// letGo gives entries that are held their own due time.
func (t *target) letGo(ctx context.Context, entries []Entry) error {
	entries, err := t.stillHeld(ctx, entries)
	if err != nil || len(entries) == 0 {
		return err
	}
	moves := make([]store.RescheduleRequest, len(entries))
	for i, e := range entries {
		moves[i] = store.RescheduleRequest{Queue: t.queue, ID: e.ID, Due: e.Due}
	}
	results, err := t.store.Reschedule(ctx, moves)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Outcome == store.Refused {
			return fmt.Errorf("task %q can not be given its due time: %w", moves[i].ID, r.Err)
		}
	}
	return nil
}

// drop removes entries that are held.
func (t *target) drop(ctx context.Context, entries []Entry) error {
	entries, err := t.stillHeld(ctx, entries)
	if err != nil || len(entries) == 0 {
		return err
	}
	cancels := make([]store.CancelRequest, len(entries))
	for i, e := range entries {
		cancels[i] = store.CancelRequest{Queue: t.queue, ID: e.ID}
	}
	results, err := t.store.Cancel(ctx, cancels)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Outcome == store.Refused {
			return fmt.Errorf("task %q, which is gone from where it came, can not be cancelled: %w", cancels[i].ID, r.Err)
		}
	}
	return nil
}
