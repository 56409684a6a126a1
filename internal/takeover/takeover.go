// Package takeover takes tasks over from a hand-made scheduler into a store, while
// its producers and consumers, and those of the store, are at work: each entry
// exactly once, whatever kills it.
//
// A few entries at a time go over in steps:
//
//  1. The source takes them out of its consumers' reach, in one atomic step, and
//     notes them as staged.
//  2. They are put into the store, held: due in the year 9999, at an instant that
//     no other takeover uses.
//  3. The source notes that they are there.
//  4. Those that are still held get their own due time, and may run.
//  5. The source forgets them.
//
// A source may leave them within its consumers' reach until step 3, and take them
// out there, in one atomic step with its note: those that it does not have any more
// by then are removed from the store.
//
// What is found staged later goes on from where it was: until step 3 an entry is
// put into the store again, which finds that it is there; from then on only what is
// still held is let go, as anything else has run, or was cancelled or moved by
// somebody else. Of what is not stored the source may also say that it is to be taken
// anew: that is removed from the store.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// Entry is one entry of a source.
type Entry struct {
	ID      string
	Due     time.Time
	Created time.Time // zero where the source does not tell
	Payload []byte    // nil where Stored

	// Stored says that step 3 is done.
	Stored bool

	// Anew says of one that was staged, and is not Stored, that it is to be removed
	// from the store and put back: it may have been run, removed or changed by
	// somebody else.
	Anew bool
}

// Left is an entry that stays with the source.
type Left struct {
	ID  string
	Why string
}

// Source is what tasks are taken over from. All methods but Left are for one
// goroutine. An error means that it is not known what was done; the takeover is
// begun anew then, by another call of Run.
type Source interface {
	// Begin makes sure that there is no other takeover from this source, and
	// returns what was noted of one that was broken off, or else notes that: the
	// instant until which entries are held.
	Begin(ctx context.Context, hold time.Time) (time.Time, error)

	// Staged returns what an earlier run has staged.
	Staged(ctx context.Context) ([]Entry, error)

	// Rewind starts again with the oldest entry.
	Rewind()

	// Take stages a few entries, oldest first, and returns them. When all have been
	// looked at, more is false. Entries that can not be taken are left where they
	// are, and told of through Left.
	Take(ctx context.Context) (entries []Entry, more bool, err error)

	// Stored notes that entries are in the store. It returns those of which it did
	// not, as they are gone from the source, or have changed, since they were taken.
	Stored(ctx context.Context, entries []Entry) (gone []Entry, err error)

	// PutBack undoes Take.
	PutBack(ctx context.Context, entries []Entry) error

	// Done forgets entries.
	Done(ctx context.Context, entries []Entry) error

	// Skip keeps Take from taking an entry again, in this run.
	Skip(id string)

	// Left returns how many entries Take has left where they are, since Rewind,
	// and the first of them.
	Left() (int64, []Left)

	// Count is how many entries there are, about.
	Count(ctx context.Context) (int64, error)

	// End ends what Begin began.
	End(ctx context.Context) error
}

// Options change how a takeover is done.
type Options struct {
	Queue string // required

	// Follow goes on until the context ends.
	Follow bool

	// Replace has an entry take the place of a task with its id; else the entry
	// stays with the source.
	Replace bool

	// Poll is how long to wait for new entries where there was none, with Follow;
	// 0: 200 ms. It is longer where looking takes long, so that no more than a tenth
	// of the time is spent on it, but no longer than a minute.
	Poll time.Duration

	// Progress is told how far it is. Total is 0 with Follow. May be nil.
	Progress func(done, total int64)

	// Stays is told, with Follow, of entries that stay with the source, each once,
	// as far as the source remembers them. May be nil.
	Stays func(Left)
}

// Report says what a takeover did.
type Report struct {
	Moved       int64
	Left        int64 // entries that stay with the source
	FirstLeft   []Left
	Interrupted bool // the context ended, without Follow
	Staged      bool // after an error: some entries may be on their way
}

const (
	firstShow = 10
	maxPoll   = time.Minute
)

type run struct {
	src    Source
	opts   Options
	target target
	report *Report
	total  int64

	skipped int64 // put back, as the store did not want them
	first   []Left

	left      int64 // by the source, in the last pass that came to its end
	leftFirst []Left
	told      map[string]bool
}

// Run takes over what there is, and with Follow what comes. When the context ends
// it ends between two slices of entries, with nothing on its way. The report is
// there after an error too.
func Run(ctx context.Context, src Source, dest store.Store, opts Options) (*Report, error) {
	if opts.Poll == 0 {
		opts.Poll = 200 * time.Millisecond
	}
	r := &run{src: src, opts: opts, report: &Report{}, told: make(map[string]bool)}
	err := r.run(ctx, dest)
	left, first := src.Left()
	if left < r.left { // this pass was broken off
		left, first = r.left, r.leftFirst
	}
	r.report.Left = left + r.skipped
	r.report.FirstLeft = append(r.first, first...)
	if len(r.report.FirstLeft) > firstShow {
		r.report.FirstLeft = r.report.FirstLeft[:firstShow]
	}
	return r.report, err
}

func (r *run) run(ctx context.Context, dest store.Store) error {
	if err := store.CheckQueue(r.opts.Queue); err != nil {
		return err
	}
	work := context.WithoutCancel(ctx) // what has begun goes through
	if err := r.target.open(work, dest, r.opts); err != nil {
		return err
	}
	hold, err := r.src.Begin(ctx, newHold())
	if err != nil {
		return err
	}
	r.target.hold = hold
	if !r.opts.Follow {
		if r.total, err = r.src.Count(work); err != nil {
			return err
		}
	}
	r.report.Staged = true
	staged, err := r.src.Staged(work)
	if err != nil {
		return err
	}
	if staged, err = r.anew(work, staged); err != nil {
		return err
	}
	if err := r.move(work, staged); err != nil {
		return err
	}
	r.show()
	for {
		began := time.Now()
		before := r.report.Moved
		if err := r.pass(ctx, work); err != nil {
			return err
		}
		if ctx.Err() != nil {
			r.report.Interrupted = !r.opts.Follow
			break
		}
		r.left, r.leftFirst = r.src.Left()
		r.tell()
		if r.report.Moved > before {
			continue
		}
		if !r.opts.Follow {
			break
		}
		// Where looking takes long it is work for the source, which has other things
		// to do.
		sleep(ctx, max(r.opts.Poll, min(9*time.Since(began), maxPoll)))
	}
	if err := r.src.End(work); err != nil {
		return err
	}
	r.report.Staged = false
	return nil
}

// anew removes from the store what is to be taken anew, and returns the others.
func (r *run) anew(work context.Context, staged []Entry) ([]Entry, error) {
	var gone, there []Entry
	for _, e := range staged {
		if e.Anew {
			gone = append(gone, e)
		} else {
			there = append(there, e)
		}
	}
	return there, r.drop(work, gone)
}

func (r *run) drop(work context.Context, gone []Entry) error {
	if len(gone) == 0 {
		return nil
	}
	if err := r.target.drop(work, gone); err != nil {
		return err
	}
	return r.src.PutBack(work, gone)
}

// tell says what stays, of those that are new since it was told last.
func (r *run) tell() {
	if r.opts.Stays == nil {
		return
	}
	for _, l := range append(slices.Clone(r.first), r.leftFirst...) {
		if !r.told[l.ID] {
			r.told[l.ID] = true
			r.opts.Stays(l)
		}
	}
}

// pass goes over the source once.
func (r *run) pass(ctx, work context.Context) error {
	r.src.Rewind()
	for {
		if ctx.Err() != nil {
			return nil
		}
		entries, more, err := r.src.Take(work)
		if err != nil {
			return err
		}
		if err := r.move(work, entries); err != nil {
			return err
		}
		r.show()
		if !more {
			return nil
		}
	}
}

func (r *run) show() {
	if r.opts.Progress != nil {
		r.opts.Progress(r.report.Moved, max(r.total, r.report.Moved)*b2i(!r.opts.Follow))
	}
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// move brings staged entries to their end.
func (r *run) move(work context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var fresh, stored []Entry
	for _, e := range entries {
		if e.Stored {
			stored = append(stored, e)
		} else {
			fresh = append(fresh, e)
		}
	}
	put, unwanted, err := r.target.put(work, fresh)
	if err != nil {
		return err
	}
	if len(unwanted) > 0 {
		back := make([]Entry, len(unwanted))
		for i, u := range unwanted {
			back[i] = u.Entry
		}
		if err := r.src.PutBack(work, back); err != nil {
			return err
		}
		var full error
		for _, u := range unwanted {
			if errors.Is(u.err, store.ErrFull) {
				full = u.err
				continue
			}
			r.src.Skip(u.ID)
			r.skipped++
			if len(r.first) < firstShow {
				r.first = append(r.first, Left{u.ID, u.err.Error()})
			}
		}
		if full != nil {
			// Those that it had room for go through first.
			if err := r.finish(work, append(stored, put...), put); err != nil {
				return err
			}
			return fmt.Errorf("the store is full, and what it had no room for stays where it was: %w", full)
		}
	}
	return r.finish(work, append(stored, put...), put)
}

func (r *run) finish(work context.Context, all, put []Entry) error {
	if len(put) > 0 {
		gone, err := r.src.Stored(work, put)
		if err != nil {
			return err
		}
		if err := r.drop(work, gone); err != nil {
			return err
		}
		all = without(all, gone)
	}
	if len(all) == 0 {
		return nil
	}
	if err := r.target.letGo(work, all); err != nil {
		return err
	}
	if err := r.src.Done(work, all); err != nil {
		return err
	}
	r.report.Moved += int64(len(all))
	return nil
}

func without(entries, gone []Entry) []Entry {
	if len(gone) == 0 {
		return entries
	}
	is := make(map[string]bool, len(gone))
	for _, e := range gone {
		is[e.ID] = true
	}
	return slices.DeleteFunc(entries, func(e Entry) bool { return is[e.ID] })
}

func newHold() time.Time {
	return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rand.Int64N(300*24*int64(time.Hour/time.Millisecond))) * time.Millisecond)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
