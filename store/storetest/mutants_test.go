package storetest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/faultstore"
	"github.com/duetime/duetime/store/storetest"
)

// mutant is a store that does one thing wrong: any of these may stand before
// the method of the store behind it.
type mutant struct {
	store.Store
	mu *sync.Mutex

	onSchedule    func(m *mutant, tasks []store.NewTask) ([]store.Result, error)
	onCancel      func(m *mutant, c []store.CancelRequest) ([]store.Result, error)
	onReschedule  func(m *mutant, c []store.RescheduleRequest) ([]store.Result, error)
	onClaim       func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error)
	onSettle      func(m *mutant, c []store.Settlement) ([]store.Result, error)
	onList        func(m *mutant, r store.ListRequest) (store.ListPage, error)
	onStats       func(m *mutant, queue string) (store.Stats, error)
	onPutSettings func(m *mutant, queue string, s store.Settings) (store.Settings, error)
	onRedrive     func(m *mutant, r store.RedriveRequest) (int, error)
	onGet         func(m *mutant, keys []store.Key) ([]store.Result, error)
	onWake        func(m *mutant, queue string) (<-chan struct{}, func())
	onImport      func(m *mutant, tasks []store.Task) ([]store.Result, error)
	onCrash       func(m *mutant)

	// What mutants keep in mind.
	count    int
	leases   []store.Lease
	tasks    []store.NewTask
	receipts map[store.Receipt]store.Receipt
	settings map[string]store.Settings
}

var ctx = context.Background()

func (m *mutant) Schedule(c context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if m.onSchedule == nil || c.Err() != nil || len(tasks) > store.MaxBatch {
		return m.Store.Schedule(c, tasks)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onSchedule(m, slices.Clone(tasks))
}

func (m *mutant) Import(c context.Context, tasks []store.Task) ([]store.Result, error) {
	if m.onImport == nil || c.Err() != nil || len(tasks) > store.MaxBatch {
		return m.Store.(store.Importer).Import(c, tasks)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onImport(m, slices.Clone(tasks))
}

func (m *mutant) Cancel(c context.Context, r []store.CancelRequest) ([]store.Result, error) {
	if m.onCancel == nil {
		return m.Store.Cancel(c, r)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onCancel(m, slices.Clone(r))
}

func (m *mutant) Reschedule(c context.Context, r []store.RescheduleRequest) ([]store.Result, error) {
	if m.onReschedule == nil {
		return m.Store.Reschedule(c, r)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onReschedule(m, slices.Clone(r))
}

func (m *mutant) Claim(c context.Context, r []store.ClaimRequest) ([]store.ClaimResult, error) {
	if m.onClaim == nil || c.Err() != nil {
		return m.Store.Claim(c, r)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onClaim(m, slices.Clone(r))
}

func (m *mutant) Settle(c context.Context, s []store.Settlement) ([]store.Result, error) {
	if m.onSettle == nil || len(s) > store.MaxBatch {
		return m.Store.Settle(c, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onSettle(m, slices.Clone(s))
}

func (m *mutant) List(c context.Context, r store.ListRequest) (store.ListPage, error) {
	if m.onList == nil {
		return m.Store.List(c, r)
	}
	return m.onList(m, r)
}

func (m *mutant) Get(c context.Context, k []store.Key) ([]store.Result, error) {
	if m.onGet == nil {
		return m.Store.Get(c, k)
	}
	return m.onGet(m, k)
}

func (m *mutant) Stats(c context.Context, queue string) (store.Stats, error) {
	if m.onStats == nil {
		return m.Store.Stats(c, queue)
	}
	return m.onStats(m, queue)
}

func (m *mutant) Settings(c context.Context, queue string) (store.Settings, error) {
	s, err := m.Store.Settings(c, queue)
	if shown, ok := m.settings[queue]; ok && err == nil {
		return shown, nil
	}
	return s, err
}

func (m *mutant) PutSettings(c context.Context, queue string, s store.Settings) (store.Settings, error) {
	if m.onPutSettings == nil {
		return m.Store.PutSettings(c, queue, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onPutSettings(m, queue, s)
}

func (m *mutant) Redrive(c context.Context, r store.RedriveRequest) (int, error) {
	if m.onRedrive == nil {
		return m.Store.Redrive(c, r)
	}
	return m.onRedrive(m, r)
}

func (m *mutant) Wake(queue string) (<-chan struct{}, func()) {
	if m.onWake == nil {
		return m.Store.Wake(queue)
	}
	return m.onWake(m, queue)
}

func (m *mutant) crash() {
	if m.onCrash != nil {
		m.onCrash(m)
	}
}

// pretend keeps settings as they were given and lets the store have others.
func pretend(change func(*store.Settings)) func(*mutant, string, store.Settings) (store.Settings, error) {
	return func(m *mutant, queue string, s store.Settings) (store.Settings, error) {
		shown := s
		change(&s)
		s, err := m.Store.PutSettings(ctx, queue, s)
		if err != nil {
			return s, err
		}
		if m.settings == nil {
			m.settings = make(map[string]store.Settings)
		}
		shown.Version = s.Version
		m.settings[queue] = shown
		return shown, nil
	}
}

// TestMutantsFail shows that the suite finds what is wrong with a store: each of
// these does one thing wrong, and each must fail in the groups that are about it.
func TestMutantsFail(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range slices.Concat(mutants(), importMutants()) {
		if names[c.name] {
			t.Fatalf("two mutants are called %q", c.name)
		}
		names[c.name] = true
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			h := harness(func(s store.Store) store.Store {
				m := c.mutant
				m.Store, m.mu = s, new(sync.Mutex)
				return &m
			})
			for _, group := range strings.Fields(c.groups) {
				if !fails(t, group, h) {
					t.Errorf("the suite's group %q finds nothing wrong with it", group)
				}
			}
		})
	}
	if len(names) < 30 {
		t.Errorf("%d mutants", len(names))
	}
}

func fails(t *testing.T, group string, h storetest.Harness) bool {
	found := false
	for _, c := range storetest.Cases() {
		if !strings.HasPrefix(c.Name, group+"/") {
			continue
		}
		found = true
		if failed, message := play(t, c, h); failed {
			t.Logf("%s: %s", c.Name, message)
			return true
		}
	}
	if !found {
		t.Fatalf("no group %q", group)
	}
	return false
}

// A store whose calls fail, or whose answers are lost, must not pass either.
func TestFaultsFail(t *testing.T) {
	for name, script := range map[string]faultstore.Script{
		"the third settle fails":       faultstore.Nth(faultstore.Settle, 3, faultstore.Fault{FailBefore: faultstore.ErrInjected}),
		"schedule is delivered twice":  faultstore.Nth(faultstore.Schedule, 0, faultstore.Fault{Twice: true}),
		"an answer to claim is lost":   faultstore.Nth(faultstore.Claim, 2, faultstore.Fault{FailAfter: faultstore.ErrInjected}),
		"each hundredth call is twice": faultstore.Random(1, 0.01, faultstore.Fault{Twice: true}),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			h := harness(func(s store.Store) store.Store { return faultstore.New(s, script) })
			if !fails(t, "model", h) {
				t.Error("the suite finds nothing wrong with it")
			}
		})
	}
}

func withDelay(m *mutant, tasks []store.NewTask, change func(time.Duration) time.Duration) ([]store.Result, error) {
	for i := range tasks {
		if tasks[i].Delay > time.Second {
			tasks[i].Delay = change(tasks[i].Delay)
		}
	}
	return m.Store.Schedule(ctx, tasks)
}
