package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// close checks what must hold of any store at any time, and ends the test's
// store.
func (e *env) close() {
	if !e.Failed() { // else the first message says more than what follows from it
		if e.caps.List {
			for queue := range e.st.queues {
				e.recount(queue)
			}
			if e.st.queues != nil {
				e.must(e.log.Final(e.ctx, e.in.Store))
			}
		}
		if r := history.Check(e.log.Lines(), history.Options{Forgets: e.caps.ProcessLeases}); !r.OK() {
			e.Errorf("the history of this test: %v", r)
		}
	}
	for range 2 {
		if err := e.st.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
	}
	if _, err := e.st.Stats(e.ctx, q); !errors.Is(err, store.ErrClosed) {
		e.Errorf("stats after close: error %v, want ErrClosed", err)
	}
}

// recount compares a queue's counters with its lists: each task is in one state,
// leases have tasks, and the oldest and the next due are those of the lists. A
// clock that runs may change all that in the middle, so that it is tried again.
func (e *env) recount(queue string) {
	e.Helper()
	var problem string
	for range 20 {
		before, err := e.st.Stats(e.ctx, queue)
		if err != nil {
			e.Errorf("stats of %q: %v", queue, err)
			return
		}
		if problem = e.recountOnce(queue, before); problem == "" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	e.Errorf("queue %q: %s", queue, problem)
}

func (e *env) recountOnce(queue string, stats store.Stats) string {
	counts := map[store.State]int64{
		store.StateScheduled: stats.Scheduled,
		store.StateReady:     stats.Ready,
		store.StateLeased:    stats.Leased,
		store.StateDead:      stats.Dead,
	}
	seen := make(map[string]store.State)
	oldest := make(map[store.State]time.Time)
	for _, state := range store.States() {
		tasks := e.listAll(queue, state, store.MaxList, false)
		if int64(len(tasks)) != counts[state] {
			return fmt.Sprintf("stats count %d %v tasks, lists have %d", counts[state], state, len(tasks))
		}
		for _, t := range tasks {
			if other, twice := seen[t.ID]; twice {
				return fmt.Sprintf("task %q is %v and %v", t.ID, other, state)
			}
			seen[t.ID] = state
		}
		if len(tasks) > 0 {
			oldest[state] = tasks[0].Due
		}
	}
	if !stats.OldestDue.Equal(oldest[store.StateReady]) {
		return fmt.Sprintf("stats say the oldest due is %v, lists %v", stats.OldestDue, oldest[store.StateReady])
	}
	if !stats.NextDue.Equal(oldest[store.StateScheduled]) {
		return fmt.Sprintf("stats say the next due is %v, lists %v", stats.NextDue, oldest[store.StateScheduled])
	}
	if !e.caps.Get {
		return ""
	}
	keys := make([]store.Key, 0, len(seen))
	for id := range seen {
		if keys = append(keys, store.Key{Queue: queue, ID: id}); len(keys) == 1000 {
			break
		}
	}
	found, err := e.st.Get(e.ctx, keys)
	if err != nil {
		return "get: " + err.Error()
	}
	for i, r := range found {
		if r.Outcome != store.Found || r.Task.State != seen[keys[i].ID] {
			return fmt.Sprintf("task %q is %v in lists, get says %v", keys[i].ID, seen[keys[i].ID], r.Outcome)
		}
	}
	return ""
}
