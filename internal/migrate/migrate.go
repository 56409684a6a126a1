// Package migrate moves tasks from one store to another while both are in use:
// each exactly once, whatever kills the mover in the middle.
//
// A page of tasks goes over in steps, each of which leaves every task either with
// the source or, out of reach of any worker, with the destination:
//
//  1. The journal, a task in a queue of its own at the source, says which tasks
//     are about to be copied.
//  2. The page is imported into the destination, held: due at an instant in the
//     year 9999 that no other move uses.
//  3. What has changed at the source since it was listed is taken back.
//  4. The journal says that from now on what is gone from the source was moved.
//  5. The page is cancelled at the source.
//  6. What is held at the destination gets its own due time, and may run.
//
// Whoever finds a journal later knows from it, from what the source still has and
// from what the destination holds, which of these was the last.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// Options change how a move is done.
type Options struct {
	Queues []string // empty: all

	// To names the destination in the journal, so that a move that was broken off
	// is not gone on with to another store.
	To string

	// Wait is for how long tasks that are running at the source are waited for.
	Wait time.Duration

	// Obeyed is how long it may take until a pause is obeyed by all who use the
	// source; 0: 1.2 s, as the contract promises a second.
	Obeyed time.Duration

	// PageSize bounds how many tasks are moved in one step; 0: 500, the most.
	PageSize int

	// Progress is told how far it is, now and then, on the caller's goroutine. May
	// be nil.
	Progress func(Progress)
}

// Progress is how far a move is.
type Progress struct {
	Queue       string
	Done, Total int64 // tasks; Total is what was there at the start
	Waiting     int64 // tasks that are running at the source and waited for; 0: none
}

// Report says what a move did.
type Report struct {
	Queues      []*QueueReport // those that had anything to say, in the order of the move
	Interrupted bool           // the context ended; the move may be gone on with
}

// QueueReport says what became of one queue.
type QueueReport struct {
	Queue      string
	Live, Dead int64 // moved

	Stuck      int64   // tasks that stay at the source
	FirstStuck []Stuck // the first of them, and why

	Running      int64    // tasks that were still running at the end
	FirstRunning []string // the first of them

	// CountersLost says that the destination can not import: failures, losses and
	// the time of scheduling of the moved tasks began anew.
	CountersLost bool

	Settings SettingsOutcome

	// StaysPaused says that the source's queue is still paused, as the move broke
	// off at a moment that has to be gone on from.
	StaysPaused bool
}

// Stuck is a task that stays at the source.
type Stuck struct{ ID, Why string }

// SettingsOutcome is what became of a queue's settings.
type SettingsOutcome uint8

const (
	SettingsDefault SettingsOutcome = iota // nobody had changed them at the source
	SettingsSame                           // the destination had the same
	SettingsCopied
	SettingsKept // the destination has others, which it keeps
	SettingsNone // the destination has no settings
)

const (
	maxPage   = 500
	pageBytes = 4 << 20 // how much payload a page should have, about
	firstShow = 10      // how many of what went wrong are named
	maxRounds = 10
)

// Total adds up what a report says.
func (r *Report) Total() QueueReport {
	t := QueueReport{}
	for _, q := range r.Queues {
		t.Live += q.Live
		t.Dead += q.Dead
		t.Stuck += q.Stuck
		t.Running += q.Running
		t.CountersLost = t.CountersLost || q.CountersLost
		t.StaysPaused = t.StaysPaused || q.StaysPaused
	}
	return t
}

// mover is one run.
type mover struct {
	from, to store.Store
	importer store.Importer // nil: the destination has none
	opts     Options
	lock     *lock
	all      *Report
	progress Progress
}

// Run moves scheduled, ready and dead tasks and the settings of queues from one
// store to another. The source's queues are paused, one after the other, while they
// are moved. When the context ends, it ends between two steps, with everything in
// order and the pause ended, and says so in the report. After an error, or the end
// of the process, the same call goes on.
//
// The report is there after an error too.
func Run(ctx context.Context, from, to store.Store, opts Options) (*Report, error) {
	m := &mover{from: from, to: to, opts: opts, all: &Report{}}
	if m.opts.Obeyed == 0 {
		m.opts.Obeyed = 1200 * time.Millisecond
	}
	m.opts.PageSize = min(cmp.Or(max(opts.PageSize, 0), maxPage), maxPage)
	return m.all, m.run(ctx)
}

func (m *mover) run(ctx context.Context) (err error) {
	if err := m.check(ctx); err != nil {
		return err
	}
	if m.lock, err = takeLock(ctx, m.from, m.to, m.opts.To); err != nil {
		return err
	}
	defer func() {
		// After an error a call may still be on its way, and do its work later
		// than whoever goes on looks at what is there. So the next one waits until
		// the lease is over.
		if err == nil {
			err = m.lock.release(ctx)
		}
	}()
	queues, err := m.queues(ctx)
	if err != nil {
		return err
	}
	movers := make([]*queueMover, len(queues))
	for i, name := range queues {
		stats, err := m.from.Stats(ctx, name)
		if err != nil {
			return err
		}
		m.progress.Total += stats.Scheduled + stats.Ready + stats.Dead
		movers[i] = &queueMover{mover: m, name: name, report: &QueueReport{Queue: name}, stuck: make(map[string]bool)}
	}
	defer func() {
		for _, q := range movers {
			if r := q.report; r.Live+r.Dead+r.Stuck+r.Running > 0 || r.Settings > SettingsSame || r.StaysPaused {
				m.all.Queues = append(m.all.Queues, r)
			}
		}
	}()
	// Producers may still be writing to the source.
	for round := range maxRounds {
		var moved int64
		for _, q := range movers {
			before := q.report.Live + q.report.Dead
			if err := q.move(ctx, round == 0); err != nil {
				return fmt.Errorf("queue %s: %w", q.name, err)
			}
			moved += q.report.Live + q.report.Dead - before
			if m.all.Interrupted {
				return nil
			}
		}
		if moved == 0 {
			return nil
		}
	}
	return nil
}

// check says what either store lacks.
func (m *mover) check(ctx context.Context) error {
	f, t := m.from.Capabilities(), m.to.Capabilities()
	for _, need := range []struct {
		has  bool
		name string
		can  string
	}{
		{f.List, f.Name, "list its tasks"},
		{f.Get, f.Name, "look tasks up"},
		{f.Cancel, f.Name, "cancel tasks"},
		{f.UniqueIDs, f.Name, "tell tasks apart by id"},
		{f.Settings, f.Name, "pause a queue"},
		{t.Get, t.Name, "look tasks up"},
		{t.Cancel, t.Name, "cancel tasks"},
		{t.Reschedule, t.Name, "reschedule tasks"},
		{t.UniqueIDs, t.Name, "tell tasks apart by id"},
	} {
		if !need.has {
			return fmt.Errorf("a %s store can not %s, so that nothing can be moved: %w", need.name, need.can, store.ErrUnsupported)
		}
	}
	var err error
	if m.importer, err = store.ImporterOf(ctx, m.to); errors.Is(err, store.ErrUnsupported) {
		err = nil
	}
	return err
}

// queues are those to be moved.
func (m *mover) queues(ctx context.Context) ([]string, error) {
	all, err := m.from.Queues(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(q string) bool { return q == journalQueue })
	if len(m.opts.Queues) == 0 {
		return all, nil
	}
	for _, q := range m.opts.Queues {
		if !slices.Contains(all, q) {
			return nil, store.NewInputError("queue", q, "is not in the store that tasks are to be moved from")
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(m.opts.Queues))), nil
}

func (m *mover) show() {
	if m.opts.Progress != nil {
		m.opts.Progress(m.progress)
	}
}

// over notes that the context has ended.
func (m *mover) over(ctx context.Context) bool {
	if ctx.Err() != nil {
		m.all.Interrupted = true
	}
	return m.all.Interrupted
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
