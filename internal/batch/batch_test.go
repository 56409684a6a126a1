package batch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// slow is a store whose calls take a while. It notes the size of each.
type slow struct {
	store.Store
	took time.Duration
	fail error

	mu    sync.Mutex
	sizes []int
}

func (s *slow) note(n int) error {
	s.mu.Lock()
	s.sizes = append(s.sizes, n)
	s.mu.Unlock()
	time.Sleep(s.took)
	return s.fail
}

func (s *slow) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if err := s.note(len(tasks)); err != nil {
		return nil, err
	}
	return s.Store.Schedule(ctx, tasks)
}

func (s *slow) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	if err := s.note(len(keys)); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, keys)
}

func (s *slow) Unwrap() store.Store { return s.Store }

func task(i int) store.NewTask {
	return store.NewTask{Queue: "q", ID: strconv.Itoa(i), Payload: []byte(strconv.Itoa(i)), Delay: time.Hour}
}

func TestCallsMadeAtOnceGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{Store: memstore.New(nil), took: time.Millisecond}
		st := Wrap(inner)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for j := range 10 {
					r, err := st.Schedule(t.Context(), []store.NewTask{task(i*10 + j)})
					if err != nil || len(r) != 1 || r[0].Outcome != store.Created {
						t.Errorf("Schedule: %v, %v", r, err)
					}
				}
			})
		}
		wg.Wait()
		// The first goes alone; from then on all who are not in the call that is in
		// flight collect: half of them at worst.
		if n := len(inner.sizes); n > 21 {
			t.Errorf("640 calls by 64 callers became %d, want at most 21: %v", n, inner.sizes)
		}
		if took := time.Since(start); took > 21*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestLoneCallGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{Store: memstore.New(nil), took: time.Millisecond}
		st := Wrap(inner)
		for i := range 5 {
			start := time.Now()
			if _, err := st.Schedule(t.Context(), []store.NewTask{task(i)}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != time.Millisecond {
				t.Errorf("took %v, the store 1ms", took)
			}
		}
	})
}

func TestEachCallerGetsItsOwnResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{Store: memstore.New(nil), took: time.Millisecond}
		st := Wrap(inner)
		const callers = 50
		var all []store.NewTask
		for i := range callers * callers {
			all = append(all, task(i))
		}
		if _, err := st.Schedule(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				var keys []store.Key
				for j := range i { // as many as the caller's number, none included
					keys = append(keys, store.Key{Queue: "q", ID: strconv.Itoa(i*callers + j)})
				}
				results, err := st.Get(t.Context(), keys)
				if err != nil || len(results) != len(keys) {
					t.Errorf("caller %d: %d results, %v", i, len(results), err)
					return
				}
				for j, r := range results {
					if r.Task.ID != keys[j].ID || string(r.Task.Payload) != keys[j].ID {
						t.Errorf("caller %d: asked for %s, got %s", i, keys[j].ID, r.Task.ID)
					}
				}
				_ = append(results, store.Result{Outcome: store.Stale}) // must not reach a neighbour's
			})
		}
		wg.Wait()
	})
}

func TestCallerWhoseContextEndsLeavesAndTheBatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{Store: memstore.New(nil), took: 10 * time.Millisecond}
		st := Wrap(inner)
		var wg sync.WaitGroup
		schedule := func(ctx context.Context, i int, want error) {
			wg.Go(func() {
				start := time.Now()
				n := task(i)
				payload := n.Payload
				_, err := st.Schedule(ctx, []store.NewTask{n})
				if !errors.Is(err, want) {
					t.Errorf("task %d: %v, want %v", i, err, want)
				}
				if want != nil && time.Since(start) > 5*time.Millisecond {
					t.Errorf("task %d: its context ended, and it waited for %v", i, time.Since(start))
				}
				for i := range payload {
					payload[i] = 'x' // the caller's memory is the caller's again
				}
			})
			synctest.Wait()
		}
		schedule(t.Context(), 0, nil) // in flight at once
		early, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		schedule(early, 1, context.DeadlineExceeded) // leaves before its batch begins
		schedule(t.Context(), 2, nil)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait() // 2 is in flight
		schedule(t.Context(), 3, nil)
		time.Sleep(7 * time.Millisecond)
		late, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		schedule(late, 4, context.DeadlineExceeded) // leaves while its batch is in flight
		wg.Wait()
		time.Sleep(20 * time.Millisecond)
		for i, want := range []store.Outcome{store.Found, store.NotFound, store.Found, store.Found, store.Found} {
			r, err := st.Get(t.Context(), []store.Key{{Queue: "q", ID: strconv.Itoa(i)}})
			if err != nil || r[0].Outcome != want {
				t.Errorf("task %d: %v, %v; want %v", i, r, err, want)
			} else if want == store.Found && string(r[0].Task.Payload) != strconv.Itoa(i) {
				t.Errorf("task %d has payload %q, which its caller wrote after leaving", i, r[0].Task.Payload)
			}
		}
	})
}

// deaf is a store that answers nothing until the context of the call ends.
type deaf struct{ store.Store }

func (deaf) Get(ctx context.Context, _ []store.Key) ([]store.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestStoreThatHangsHoldsUpNobodyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := Wrap(deaf{memstore.New(nil)})
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := st.Get(ctx, []store.Key{{Queue: "q", ID: "x"}}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		g := &st.(*batched).get
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.flying > 0 || g.items != 0 || len(g.queue) > 0 {
			t.Errorf("nobody waits any more, and yet a call is in flight, and %d wait", len(g.queue))
		}
	})
}

func TestErrorGoesToAllOfABatchAndNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{Store: memstore.New(nil), took: time.Millisecond, fail: errors.New("connection lost")}
		st := Wrap(inner)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if _, err := st.Schedule(t.Context(), []store.NewTask{task(i)}); !errors.Is(err, inner.fail) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		inner.fail = nil
		if _, err := st.Schedule(t.Context(), []store.NewTask{task(1)}); err != nil {
			t.Error(err)
		}
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{Store: memstore.New(nil), took: time.Millisecond}
		st := Wrap(inner)
		var wg sync.WaitGroup
		for i := range 24 { // 24 MiB in all, by the MiB
			wg.Go(func() {
				n := task(i)
				n.Payload = make([]byte, 1<<20)
				if r, err := st.Schedule(t.Context(), []store.NewTask{n}); err != nil || r[0].Outcome != store.Created {
					t.Errorf("%v, %v", r, err)
				}
			})
		}
		wg.Wait()
		for _, n := range inner.sizes {
			if n > maxBytes>>20 {
				t.Errorf("a call had %d MiB", n)
			}
		}
		inner.sizes = nil
		for i := range 30 { // by the thousand, so that they are too many for one call
			wg.Go(func() {
				tasks := make([]store.NewTask, 1000)
				for j := range tasks {
					tasks[j] = task(1000*i + j)
				}
				if r, err := st.Schedule(t.Context(), tasks); err != nil || len(r) != len(tasks) {
					t.Errorf("%d results, %v", len(r), err)
				}
			})
		}
		wg.Wait()
		for _, n := range inner.sizes {
			if n > store.MaxBatch {
				t.Errorf("a call had %d items", n)
			}
		}
	})
}

func TestLargeCallsNeitherWaitNorHoldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{Store: memstore.New(nil), took: time.Second}
		st := Wrap(inner)
		go func() { _, _ = st.Schedule(t.Context(), []store.NewTask{task(0)}) }()
		synctest.Wait()
		start := time.Now()
		tasks := make([]store.NewTask, large)
		for i := range tasks {
			tasks[i] = task(i + 1)
		}
		if _, err := st.Schedule(t.Context(), tasks); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if r, err := st.Schedule(t.Context(), nil); len(r) != 0 || err != nil {
			t.Errorf("no tasks: %v, %v", r, err)
		}
	})
}

func TestAsSeesThrough(t *testing.T) {
	inner := &slow{Store: memstore.New(nil)}
	st := Wrap(inner)
	if got, ok := store.As[*slow](st); !ok || got != inner {
		t.Error("the wrapped store was not found")
	}
	if Wrap(st) != st {
		t.Error("wrapped twice")
	}
}

// null is a store that does nothing, quickly, so that only the batching costs.
type null struct{ store.Store }

func (null) Settle(_ context.Context, s []store.Settlement) ([]store.Result, error) {
	return make([]store.Result, len(s)), nil
}

func BenchmarkOverhead(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for name, st := range map[string]store.Store{"plain": null{}, "batched": Wrap(null{})} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				b.ReportAllocs()
				ctx := b.Context()
				b.SetParallelism(max(callers/2, 1))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						_, _ = st.Settle(ctx, []store.Settlement{{Receipt: "r", Action: store.Ack}})
					}
				})
			})
		}
	}
}

// disk is a store with a call that takes 0.3 ms, one at a time, as a sync of a
// disk does, or side by side, as a round trip does.
type disk struct {
	store.Store
	serial bool
	mu     sync.Mutex
	calls  atomic.Int64
}

func (d *disk) Schedule(_ context.Context, t []store.NewTask) ([]store.Result, error) {
	d.calls.Add(1)
	if d.serial {
		d.mu.Lock()
		defer d.mu.Unlock()
	}
	time.Sleep(300 * time.Microsecond)
	return make([]store.Result, len(t)), nil
}

func BenchmarkSlowStore(b *testing.B) {
	for _, serial := range []bool{true, false} {
		for _, callers := range []int{1, 2, 8, 64, 512} {
			b.Run(fmt.Sprintf("serial=%v/callers=%d", serial, callers), func(b *testing.B) {
				d := &disk{serial: serial}
				st := Wrap(d)
				var wg sync.WaitGroup
				var left atomic.Int64
				left.Store(int64(b.N))
				for range callers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							_, _ = st.Schedule(b.Context(), []store.NewTask{{Queue: "q", ID: "x"}})
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
				b.ReportMetric(float64(b.N)/float64(d.calls.Load()), "items/call")
			})
		}
	}
}
