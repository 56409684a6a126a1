// Package takeovertest is what tests of takeovers share: the store that tasks go to,
// which knows what ran, and a process that is killed between two steps.
package takeovertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/faultstore"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/storetest"
)

// Entry is what a task must be like when it runs.
type Entry struct {
	Due     time.Time
	Payload string
}

// Dest is the store that tasks are taken over into, and its worker. It is to be used
// by one goroutine at a time.
type Dest struct {
	*memstore.Store
	Clock *storetest.Clock
	Queue string
	Runs  map[string][]store.Lease
	Order []string // ids as they ran

	t testing.TB
}

// NewDest returns an empty one.
func NewDest(t testing.TB, queue string) *Dest {
	clock := storetest.NewClock()
	return &Dest{Store: memstore.New(&memstore.Options{Now: clock.Now}), Clock: clock, Queue: queue, Runs: make(map[string][]store.Lease), t: t}
}

// Work runs all that is due.
func (d *Dest) Work() {
	d.t.Helper()
	ctx := context.Background()
	for {
		r, err := d.Claim(ctx, []store.ClaimRequest{{Queue: d.Queue, Max: 100, Lease: time.Minute}})
		if err != nil {
			d.t.Fatal(err)
		}
		if len(r[0].Tasks) == 0 {
			return
		}
		for _, l := range r[0].Tasks {
			d.Runs[l.ID] = append(d.Runs[l.ID], l)
			d.Order = append(d.Order, l.ID)
			if _, err := d.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}}); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// Check runs what is due now and within a day. It says that each of the entries has
// then run once, there or in the old system, as it was and not early, and that
// nothing else has run and nothing is left.
func (d *Dest) Check(want map[string]Entry, old map[string]int) {
	d.t.Helper()
	d.Work()
	d.Clock.Advance(24 * time.Hour)
	d.Work()
	for id, e := range want {
		if n := old[id] + len(d.Runs[id]); n != 1 {
			d.t.Errorf("%q ran %d times in the old system and %d times in the new", id, old[id], len(d.Runs[id]))
		}
		for _, l := range d.Runs[id] {
			if !l.Due.Equal(e.Due) || string(l.Payload) != e.Payload || l.ClaimedAt.Before(l.Due) {
				d.t.Errorf("%q ran as %+v at %v, want %+v", id, l.Task, l.ClaimedAt, e)
			}
		}
	}
	for id := range d.Runs {
		if _, ok := want[id]; !ok {
			d.t.Errorf("%q ran, which nobody has scheduled", id)
		}
	}
	stats, err := d.Stats(context.Background(), d.Queue)
	if err != nil {
		d.t.Fatal(err)
	}
	if stats != (store.Stats{}) {
		d.t.Errorf("the store still has %+v", stats)
	}
}

var errKilled = errors.New("killed")

// Dying is a process that ends at its nth step, before or after it.
type Dying struct {
	takeover.Source
	N      int // 0: never
	Before bool
	Do     func(step int) // before each step; may be nil

	steps int
}

func (d *Dying) step(f func() error) error {
	d.steps++
	if d.N > 0 && d.steps > d.N || d.steps == d.N && d.Before {
		return errKilled
	}
	if d.Do != nil {
		d.Do(d.steps)
	}
	err := f()
	if d.steps == d.N {
		return errKilled
	}
	return err
}

// Begin implements takeover.Source, as do the others.
func (d *Dying) Begin(ctx context.Context, hold time.Time) (at time.Time, err error) {
	err = d.step(func() error { at, err = d.Source.Begin(ctx, hold); return err })
	return at, err
}

func (d *Dying) Staged(ctx context.Context) (e []takeover.Entry, err error) {
	err = d.step(func() error { e, err = d.Source.Staged(ctx); return err })
	return e, err
}

func (d *Dying) Take(ctx context.Context) (e []takeover.Entry, more bool, err error) {
	err = d.step(func() error { e, more, err = d.Source.Take(ctx); return err })
	return e, more, err
}

func (d *Dying) Stored(ctx context.Context, e []takeover.Entry) (gone []takeover.Entry, err error) {
	err = d.step(func() error { gone, err = d.Source.Stored(ctx, e); return err })
	return gone, err
}

func (d *Dying) PutBack(ctx context.Context, e []takeover.Entry) error {
	return d.step(func() error { return d.Source.PutBack(ctx, e) })
}

func (d *Dying) Done(ctx context.Context, e []takeover.Entry) error {
	return d.step(func() error { return d.Source.Done(ctx, e) })
}

func (d *Dying) End(ctx context.Context) error {
	return d.step(func() error { return d.Source.End(ctx) })
}

// Run runs the process; the calls that it makes of the store are steps too. It says
// how many steps it took and whether it was killed.
func (d *Dying) Run(ctx context.Context, dest *Dest, opts takeover.Options) (steps int, killed bool) {
	dest.t.Helper()
	faulty := faultstore.New(dest.Store, func(faultstore.Call) (f faultstore.Fault) {
		err := d.step(func() error { return nil })
		switch {
		case err == nil:
		case d.steps == d.N && !d.Before:
			f.FailAfter = errKilled
		default:
			f.FailBefore = errKilled
		}
		return f
	})
	_, err := takeover.Run(ctx, d, faulty, opts)
	if err != nil && !errors.Is(err, errKilled) {
		dest.t.Fatalf("killed at step %d: %v", d.N, err)
	}
	return d.steps, err != nil
}
