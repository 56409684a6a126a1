// Package storetest is the store contract as a test: every store runs all of it
// in its ordinary go test. A store's side is a [Harness]:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{Open: func(t testing.TB) *storetest.Instance {
//			clock := storetest.NewClock()
//			return &storetest.Instance{
//				Store:   memstore.New(&memstore.Options{Now: clock.Now}),
//				Advance: clock.Advance,
//			}
//		}})
//	}
//
// [Run] plays everything, [Benchmark] measures, and package storetest/history
// checks what many processes did together, crashes included.
package storetest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// Harness is a store's side of the suite.
type Harness struct {
	// Open opens a new, empty store for one test. What it opened is freed by
	// t.Cleanup, but for the store itself, which the suite closes. Tests run
	// in parallel, each with a store of its own.
	Open func(t testing.TB) *Instance

	// MaxWait is the longest that a test may wait where the store's clock can
	// not be moved; tests that need longer are skipped then. 0 means 3 s.
	MaxWait time.Duration

	// Late is for stores that sit on a broker, where a task becomes ready a moment
	// after it is due and counts lag behind what was done: tests wait for so long
	// in addition, and look again where what they want to see is not there yet.
	Late time.Duration

	// Serial keeps tests from running in parallel, for stores that share
	// something that bears only one at a time.
	Serial bool
}

// Instance is a store under test.
type Instance struct {
	Store store.Store

	// Advance moves the store's clock. It must stand still otherwise, and begin
	// at a whole second. Nil where the store has a clock of its own: the suite
	// waits then.
	Advance func(time.Duration)

	// Reopen ends the store as a crash would, as far as the store can play
	// that, and opens what is left of it. Nil where nothing outlives the store.
	Reopen func(t testing.TB) store.Store
}

// Clock is a clock that stands still until it is moved, for Instance.Advance.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows a moment in the year 2027.
func NewClock() *Clock { return NewClockAt(time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)) }

// NewClockAt returns a clock that shows now.
func NewClockAt(now time.Time) *Clock { return &Clock{now: now} }

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// needs are the capabilities without which a case means nothing.
type needs uint

const (
	cancel needs = 1 << iota
	reschedule
	get
	list
	unique
	settings
	release
	redrive
	purge
	fakeClock // the store's clock can be moved
	reopen
	ordered  // the store hands out exactly in order
	counted  // the store knows what is scheduled
	receipts // leases outlive the process that has them
)

func (n needs) metBy(in *Instance) bool {
	c := in.Store.Capabilities()
	for need, has := range map[needs]bool{
		cancel: c.Cancel, reschedule: c.Reschedule, get: c.Get, list: c.List, unique: c.UniqueIDs,
		settings: c.Settings, release: c.Release, redrive: c.Redrive, purge: c.Purge,
		fakeClock: in.Advance != nil, reopen: in.Reopen != nil,
		ordered: !c.Unordered, counted: !c.Uncounted, receipts: !c.ProcessLeases,
	} {
		if n&need != 0 && !has {
			return false
		}
	}
	return true
}

// Case is one test of the suite.
type Case struct {
	Name string // such as "cancel/twice in a batch"
	Run  func(t testing.TB, h Harness)
}

type group struct {
	name  string
	cases []testCase
}

type testCase struct {
	name  string
	needs needs
	run   func(*env)
}

func groups() []group {
	return []group{
		{"schedule", scheduleCases},
		{"identity", identityCases},
		{"limits", limitCases},
		{"claim", claimCases},
		{"next", nextCases},
		{"ahead", aheadCases},
		{"lease", leaseCases},
		{"settle", settleCases},
		{"retry", retryCases},
		{"cancel", cancelCases},
		{"reschedule", rescheduleCases},
		{"order", orderCases},
		{"list", listCases},
		{"stats", statsCases},
		{"settings", settingsCases},
		{"release", releaseCases},
		{"dead", deadCases},
		{"import", importCases},
		{"hostile", hostileCases},
		{"payload", payloadCases},
		{"wake", wakeCases},
		{"concurrency", concurrencyCases},
		{"crash", crashCases},
		{"close", closeCases},
		{"unsupported", unsupportedCases},
		{"scenario", scenarioCases},
		{"model", modelCases},
	}
}

// Cases lists all of the suite, for those who want to run it in a way of their
// own. Run needs a TB whose Cleanup works; Skip may be called on it.
func Cases() []Case {
	var all []Case
	for _, g := range groups() {
		for _, c := range g.cases {
			all = append(all, Case{g.name + "/" + c.name, func(t testing.TB, h Harness) {
				t.Helper()
				c.run(newEnv(t, h, c.needs))
			}})
		}
	}
	return all
}

// Run plays the whole suite.
func Run(t *testing.T, h Harness) { RunOnly(t, h) }

// RunOnly plays the named groups, such as "scenario" or "model"; none means all.
func RunOnly(t *testing.T, h Harness, names ...string) {
	for _, g := range groups() {
		if len(names) > 0 && !slices.Contains(names, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
					if !h.Serial {
						t.Parallel()
					}
					c.run(newEnv(t, h, c.needs))
				})
			}
		})
	}
}
