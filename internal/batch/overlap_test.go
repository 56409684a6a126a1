package batch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// wide is a slow store whose calls do not wait for each other.
type wide struct {
	slow

	mu        sync.Mutex
	now, most int
}

func (w *wide) Overlap() int { return 2 }

func (w *wide) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	w.mu.Lock()
	w.now++
	w.most = max(w.most, w.now)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.now--
		w.mu.Unlock()
	}()
	return w.slow.Schedule(ctx, tasks)
}

func schedule(t *testing.T, st store.Store, callers, calls int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range calls {
				r, err := st.Schedule(t.Context(), []store.NewTask{task(i*calls + j)})
				if err != nil || len(r) != 1 || r[0].Outcome != store.Created {
					t.Errorf("Schedule: %v, %v", r, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestManyCallersShareTwoFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wide{slow: slow{Store: memstore.New(nil), took: time.Millisecond}}
		schedule(t, Wrap(w), 64, 20)
		if w.most != 2 {
			t.Errorf("%d calls at a time, want 2", w.most)
		}
		// Each of two flights has about half of the callers: 40 calls of 32 items if
		// they came back one after the other. Here they come back at the same instant.
		if n := len(w.sizes); n > 80 {
			t.Errorf("1280 calls became %d, want at most 80: %v", n, w.sizes)
		}
	})
}

// A second flight costs more than it gains where few wait.
func TestFewCallersGoInOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wide{slow: slow{Store: memstore.New(nil), took: time.Millisecond}}
		schedule(t, Wrap(w), worthwhile, 10)
		if w.most != 1 {
			t.Errorf("%d calls at a time, want 1", w.most)
		}
		if n := len(w.sizes); n > 21 {
			t.Errorf("%d calls, want at most 21: %v", n, w.sizes)
		}
	})
}
