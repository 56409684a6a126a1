// Package faultstore wraps a store and lets its calls go wrong by a script: they
// fail before they reach the store, or after it has done what was asked and only
// the answer is lost; they come late, or twice. It is for tests of what sits on
// a store.
package faultstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

// ErrInjected is what calls fail with where a fault does not say.
var ErrInjected = errors.New("fault injected by a test")

// Op names a method of store.Store.
type Op string

// The methods that a script sees: those of store.Store, and Import.
const (
	Schedule    Op = "Schedule"
	Cancel      Op = "Cancel"
	Reschedule  Op = "Reschedule"
	Claim       Op = "Claim"
	Settle      Op = "Settle"
	Get         Op = "Get"
	List        Op = "List"
	Queues      Op = "Queues"
	Stats       Op = "Stats"
	Settings    Op = "Settings"
	PutSettings Op = "PutSettings"
	Redrive     Op = "Redrive"
	Purge       Op = "Purge"
	Wake        Op = "Wake"
	Import      Op = "Import" // of store.Importer
)

// Call is a call that is about to be made.
type Call struct {
	Op    Op
	N     int // which call of this method it is, from 1
	Items int // in its batch; 1 where there is none
}

// Fault is what happens to a call. The zero value lets it pass. Of Wake,
// FailBefore means a channel that never ticks, and the rest means nothing.
type Fault struct {
	DelayBefore time.Duration // before it reaches the store
	FailBefore  error         // it never reaches the store
	Twice       bool          // it reaches the store twice; the second answer counts
	DelayAfter  time.Duration // after the store has done it
	FailAfter   error         // the store has done it, and the answer is lost
}

// Script says what happens to each call. It is called from many goroutines.
type Script func(Call) Fault

// Store is the store with faults.
type Store struct {
	inner store.Store

	mu     sync.Mutex
	script Script
	calls  map[Op]int
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Unwrapper = (*Store)(nil)
	_ store.Importer  = (*Store)(nil)
)

// New wraps a store. A nil script lets all pass.
func New(inner store.Store, script Script) *Store {
	return &Store{inner: inner, script: script, calls: make(map[Op]int)}
}

// SetScript changes the script from the next call on.
func (s *Store) SetScript(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// Calls is how many calls of a method were made, those that failed included.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Unwrap returns the store without faults.
func (s *Store) Unwrap() store.Store { return s.inner }

// Nth makes the nth call of a method fail; 0 means every one.
func Nth(op Op, n int, f Fault) Script {
	return func(c Call) Fault {
		if c.Op == op && (n == 0 || c.N == n) {
			return f
		}
		return Fault{}
	}
}

// Random makes a share of all calls, from 0 to 1, go wrong in one of the given
// ways.
func Random(seed uint64, share float64, faults ...Fault) Script {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, seed))
	return func(Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		if rnd.Float64() >= share {
			return Fault{}
		}
		return faults[rnd.IntN(len(faults))]
	}
}

// Join asks each script in turn; the first that wants a fault has it.
func Join(scripts ...Script) Script {
	return func(c Call) Fault {
		for _, s := range scripts {
			if f := s(c); f != (Fault{}) {
				return f
			}
		}
		return Fault{}
	}
}

func (s *Store) fault(op Op, items int) Fault {
	s.mu.Lock()
	s.calls[op]++
	c, script := Call{Op: op, N: s.calls[op], Items: items}, s.script
	s.mu.Unlock()
	if script == nil {
		return Fault{}
	}
	return script(c)
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do makes a call with its fault.
func do[T any](ctx context.Context, s *Store, op Op, items int, call func() (T, error)) (T, error) {
	var none T
	f := s.fault(op, items)
	if err := wait(ctx, f.DelayBefore); err != nil {
		return none, err
	}
	if f.FailBefore != nil {
		return none, f.FailBefore
	}
	result, err := call()
	if f.Twice {
		result, err = call()
	}
	if err := wait(ctx, f.DelayAfter); err != nil {
		return none, err
	}
	if f.FailAfter != nil {
		return none, f.FailAfter
	}
	return result, err
}
