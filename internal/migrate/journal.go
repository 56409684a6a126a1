package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime/store"
)

// journal is what a move knows of a queue that is on its way. It is the payload of
// a task at the source that is never due.
//
// Version rule: a program reads the versions up to its own and writes its own.
type journal struct {
	Version   int       `json:"version"`
	To        string    `json:"to"`
	Hold      time.Time `json:"hold"`       // when tasks that are held are due
	WasPaused bool      `json:"was_paused"` // before the move
	Phase     phase     `json:"phase"`
	Tasks     []entry   `json:"tasks,omitempty"` // the page that is, or was last, on its way
}

const journalVersion = 1

// phase is how far a page is.
type phase string

const (
	// copying: the destination may hold copies, and the source has every task
	// that it had, unless somebody else has cancelled it.
	copying phase = "copying"
	// moving: what the source does not have any more was moved.
	moving phase = "moving"
)

// entry is one task of a page. Created and Generation tell it from a later one
// with the same id.
type entry struct {
	ID         string `json:"id"`
	Due        int64  `json:"due"` // Unix milliseconds
	Created    int64  `json:"created"`
	Generation int    `json:"generation,omitempty"`
	Dead       bool   `json:"dead,omitempty"`
}

// entryBytes is how much of a journal one entry is, at most: an id is JSON with at
// most one escape for each byte.
const entryBytes = 2*store.MaxIDBytes + 120

func entryOf(t *store.Task) entry {
	return entry{ID: t.ID, Due: t.Due.UnixMilli(), Created: t.Created.UnixMilli(), Generation: t.Generation, Dead: t.State == store.StateDead}
}

// same says that a task is the one that the entry is about, though it may have
// been moved to another time since.
func (e *entry) same(t *store.Task) bool {
	return t.Created.UnixMilli() == e.Created && t.Generation == e.Generation
}

func (e *entry) due() time.Time { return time.UnixMilli(e.Due).UTC() }

// newHold picks an instant that no other move holds its tasks until, so that it
// never takes another's for its own.
func newHold() time.Time {
	return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rand.Int64N(300*24*int64(time.Hour/time.Millisecond))) * time.Millisecond)
}

func journalID(queue string) string { return "queue " + queue }

// readJournal returns nil where there is none.
func (q *queueMover) readJournal(ctx context.Context) (*journal, error) {
	r, err := q.from.Get(ctx, []store.Key{{Queue: journalQueue, ID: journalID(q.name)}})
	if err != nil || r[0].Outcome != store.Found {
		return nil, err
	}
	j := &journal{}
	if err := json.Unmarshal(r[0].Task.Payload, j); err != nil {
		return nil, fmt.Errorf("the journal of a move (task %q in queue %s) can not be read: %w", journalID(q.name), journalQueue, err)
	}
	if j.Version > journalVersion {
		return nil, fmt.Errorf("the journal of a move is of version %d, this program knows up to %d", j.Version, journalVersion)
	}
	if j.To != q.opts.To {
		return nil, fmt.Errorf("a move of this queue to %s was broken off: finish it first, by the same command as then", j.To)
	}
	return j, nil
}

func (q *queueMover) writeJournal(ctx context.Context) error {
	var payload bytes.Buffer
	e := json.NewEncoder(&payload)
	e.SetEscapeHTML(false) // see entryBytes
	if err := e.Encode(q.journal); err != nil {
		return err
	}
	r, err := q.from.Schedule(ctx, []store.NewTask{{
		Queue: journalQueue, ID: journalID(q.name), Payload: payload.Bytes(), Due: store.MaxTime, Conflict: store.ConflictReplace,
	}})
	if err != nil {
		return err
	}
	if o := r[0].Outcome; o != store.Created && o != store.Replaced {
		return fmt.Errorf("the journal can not be written at the source: %w", r[0].Err)
	}
	return nil
}

func (q *queueMover) dropJournal(ctx context.Context) error {
	_, err := q.from.Cancel(ctx, []store.CancelRequest{{Queue: journalQueue, ID: journalID(q.name)}})
	return err
}
