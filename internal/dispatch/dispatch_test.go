package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime/internal/clock"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// spy is a store that counts claims, and can be made to misbehave.
type spy struct {
	store.Store

	mu       sync.Mutex
	claims   int
	requests int
	settles  int
	fail     func(claim int) error // by number, from 1
	delay    time.Duration         // of each claim, after the store has carried it out
	deaf     bool                  // no ticks
	answer   func([]store.ClaimResult)
}

func (s *spy) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	s.mu.Lock()
	s.claims++
	s.requests += len(requests)
	n, fail, delay := s.claims, s.fail, s.delay
	s.mu.Unlock()
	if fail != nil {
		if err := fail(n); err != nil {
			return nil, err
		}
	}
	results, err := s.Store.Claim(ctx, requests)
	time.Sleep(delay)
	if s.answer != nil {
		s.answer(results)
	}
	return results, err
}

func (s *spy) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	s.mu.Lock()
	s.settles += len(settlements)
	s.mu.Unlock()
	return s.Store.Settle(ctx, settlements)
}

func (s *spy) Wake(queue string) (<-chan struct{}, func()) {
	if s.deaf {
		return nil, func() {}
	}
	return s.Store.Wake(queue)
}

func (s *spy) count() (claims, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims, s.requests
}

// steady is the bubble's clock, but not known to be make-believe, so that the
// dispatcher looks again every second as it does in real life.
type steady struct{ *clock.System }

func (steady) Virtual() bool { return false }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func setup(t *testing.T, opts *Options) (*Dispatcher, *spy) {
	t.Helper()
	st := &spy{Store: memstore.New(nil)}
	return start(t, st, opts), st
}

func start(t *testing.T, st store.Store, opts *Options) *Dispatcher {
	t.Helper()
	if opts == nil {
		opts = new(Options)
	}
	opts.Logger = quiet()
	d := New(st, opts)
	t.Cleanup(d.Close)
	return d
}

func schedule(t *testing.T, st store.Store, id string, delay time.Duration) {
	t.Helper()
	r, err := st.Schedule(context.Background(), []store.NewTask{{Queue: "q", ID: id, Delay: delay}})
	if err != nil || r[0].Outcome != store.Created {
		t.Fatalf("schedule %s: %v, %v", id, r, err)
	}
}

func take(ctx context.Context, d *Dispatcher, n int) ([]store.Lease, error) {
	return d.Take(ctx, store.ClaimRequest{Queue: "q", Max: n, Lease: time.Minute, Worker: "w"})
}

// one takes a task and does it.
func one(t *testing.T, d *Dispatcher) store.Lease {
	t.Helper()
	leases, err := take(t.Context(), d, 1)
	if err != nil || len(leases) != 1 {
		t.Fatalf("take: %d leases, %v", len(leases), err)
	}
	r, err := d.store.Settle(t.Context(), []store.Settlement{{Receipt: leases[0].Receipt, Action: store.Ack}})
	if err != nil || r[0].Outcome != store.Acked {
		t.Fatalf("ack: %v, %v", r, err)
	}
	return leases[0]
}

// counts checks what a claim of the queue's states says.
func counts(t *testing.T, st store.Store, ready, leased int64) {
	t.Helper()
	s, err := st.Stats(context.Background(), "q")
	if err != nil || s.Ready != ready || s.Leased != leased {
		t.Errorf("%d ready and %d leased, %v; want %d and %d", s.Ready, s.Leased, err, ready, leased)
	}
}

func TestTaskIsHandedOutTheMomentItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, nil)
		for _, delay := range []time.Duration{0, time.Millisecond, 1500 * time.Millisecond, 30 * time.Minute, 400 * 24 * time.Hour} {
			before, _ := st.count()
			start := time.Now()
			schedule(t, st, delay.String(), delay)
			if l := one(t, d); l.ID != delay.String() || time.Since(start) != delay {
				t.Errorf("due after %v, got %s after %v", delay, l.ID, time.Since(start))
			}
			after, _ := st.count()
			if after-before > 12_000 {
				t.Errorf("%v took %d claims", delay, after-before)
			}
		}
	})
}

func TestSleeperWakesForAnEarlierTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Fallback: 24 * time.Hour}) // so that only a tick can wake it
		start := time.Now()
		schedule(t, st, "late", time.Hour)
		go func() {
			time.Sleep(time.Minute)
			schedule(t, st, "early", time.Minute)
			time.Sleep(30 * time.Second)
			_, _ = st.Reschedule(context.Background(), []store.RescheduleRequest{{Queue: "q", ID: "late", Delay: time.Second}})
		}()
		if l := one(t, d); l.ID != "late" || time.Since(start) != 91*time.Second {
			t.Errorf("got %s after %v", l.ID, time.Since(start))
		}
		if l := one(t, d); l.ID != "early" || time.Since(start) != 2*time.Minute {
			t.Errorf("got %s after %v", l.ID, time.Since(start))
		}
	})
}

func TestLostTicksCostASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &spy{Store: memstore.New(nil), deaf: true}
		d := start(t, st, &Options{Clock: steady{clock.New()}})
		schedule(t, st, "late", time.Hour)
		go func() {
			time.Sleep(100*time.Second + time.Millisecond)
			schedule(t, st, "early", 0)
		}()
		l := one(t, d)
		if late := time.Since(l.Due); l.ID != "early" || late > time.Second {
			t.Errorf("got %s, %v late", l.ID, late)
		}
	})
}

func TestWaitersAreServedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, nil)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				l, err := take(t.Context(), d, 1)
				if err != nil || len(l) != 1 {
					t.Errorf("take: %v, %v", l, err)
					return
				}
				if l[0].ID != strconv.Itoa(i) {
					t.Errorf("waiter %d got task %s", i, l[0].ID)
				}
			})
			synctest.Wait()
		}
		for i := range 20 {
			schedule(t, st, strconv.Itoa(i), time.Duration(i)*time.Second)
		}
		wg.Wait()
	})
}

func TestThousandsOfIdleWaitersCostOneSmallClaimASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Clock: steady{clock.New()}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() { _, _ = take(ctx, d, 10) })
		}
		time.Sleep(100*time.Second + time.Millisecond)
		claims, requests := st.count()
		if claims < 100 || claims > 102 || requests > 110 {
			t.Errorf("%d claims of %d requests in 100 s", claims, requests)
		}
		if h := d.Health(); h.Waiting != 2000 || h.LastError != nil || time.Since(h.LastSuccess) > time.Second {
			t.Errorf("health: %+v", h)
		}
		cancel()
		wg.Wait()
		if h := d.Health(); h.Waiting != 0 {
			t.Errorf("health: %+v", h)
		}
	})
}

func TestHerdIsServedInFewClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Clock: steady{clock.New()}})
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				if l, err := take(t.Context(), d, 1); err != nil || len(l) != 1 {
					t.Errorf("%v, %v", l, err)
				}
			})
		}
		synctest.Wait()
		due := time.Now().Add(500 * time.Millisecond)
		tasks := make([]store.NewTask, 2000)
		for i := range tasks {
			tasks[i] = store.NewTask{Queue: "q", ID: strconv.Itoa(i), Due: due}
		}
		if _, err := st.Schedule(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before, _ := st.count()
		wg.Wait()
		after, requests := st.count()
		if after-before > 12 || requests > 2100 {
			t.Errorf("%d claims, %d requests for 2,000 waiters", after-before, requests)
		}
		if time.Now().After(due) {
			t.Errorf("the last was %v late", time.Since(due))
		}
	})
}

func TestOneTaskCostsLittleWithThousandsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Clock: steady{clock.New()}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		served := make(chan struct{}, 2000)
		for range 2000 {
			go func() {
				if l, _ := take(ctx, d, 1); len(l) == 1 {
					served <- struct{}{}
				}
			}()
		}
		synctest.Wait()
		_, before := st.count()
		for i := range 100 {
			schedule(t, st, strconv.Itoa(i), 0)
			<-served
		}
		if _, after := st.count(); after-before > 100*2*few {
			t.Errorf("100 tasks took %d requests", after-before)
		}
	})
}

func TestWhatAGoneWaiterWasGivenIsReleasedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &spy{Store: memstore.New(nil), delay: 100 * time.Millisecond}
		d := start(t, st, nil)
		schedule(t, st, "a", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // while the claim is in flight
		defer cancel()
		if l, err := take(ctx, d, 1); !errors.Is(err, context.DeadlineExceeded) || l != nil {
			t.Errorf("%v, %v", l, err)
		}
		counts(t, st, 1, 0)
		if l := one(t, d); l.Attempt() != 1 {
			t.Errorf("attempt %d: something was counted", l.Attempt())
		}
	})
}

func TestTakeDoesNotWaitLongForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &spy{Store: memstore.New(nil), delay: 20 * time.Second}
		d := start(t, st, nil)
		schedule(t, st, "a", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := take(ctx, d, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second+leaveTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		counts(t, st, 0, 1)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		counts(t, st, 1, 0) // when it was back it was released
	})
}

func TestAtMostOnceIsNotLostWithItsWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &spy{Store: memstore.New(nil), delay: 5 * time.Second}
		d := start(t, st, nil)
		schedule(t, st, "a", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := d.Take(ctx, store.ClaimRequest{Queue: "q", Max: 1, AtMostOnce: true})
		if err != nil || len(l) != 1 || l[0].ID != "a" {
			t.Errorf("%v, %v", l, err)
		}
		// And where nothing comes, it still leaves.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l, err := d.Take(ctx, store.ClaimRequest{Queue: "q", Max: 1, AtMostOnce: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", l, err)
		}
	})
}

func TestWrongRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, nil)
		var input *store.InputError
		for _, r := range []store.ClaimRequest{{Queue: "", Max: 1}, {Queue: "q"}, {Queue: "q", Max: 1, Lease: -1}} {
			if _, err := d.Take(t.Context(), r); !errors.As(err, &input) {
				t.Errorf("%+v: %v", r, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := take(ctx, d, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if claims, _ := st.count(); claims != 0 {
			t.Errorf("%d claims", claims)
		}
	})
}

func TestCloseSendsWaitersAwayAndReleasesWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &spy{Store: memstore.New(nil), delay: time.Second}
		d := start(t, st, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := take(t.Context(), d, 1); !errors.Is(err, store.ErrClosed) {
				t.Errorf("take: %v", err)
			}
		})
		time.Sleep(2 * time.Second)
		d.Close()
		wg.Wait()
		if _, err := take(t.Context(), d, 1); !errors.Is(err, store.ErrClosed) {
			t.Errorf("take after Close: %v", err)
		}
		d.Close()
	})
}

func TestNothingRunsOnceNobodyHasWaitedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Clock: steady{clock.New()}})
		schedule(t, st, "a", 0)
		one(t, d)
		loops := func() int {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.queues)
		}
		if loops() != 1 {
			t.Error("the loop did not linger")
		}
		time.Sleep(d.linger + time.Millisecond)
		synctest.Wait()
		if loops() != 0 {
			t.Error("the loop is still there")
		}
		before, _ := st.count()
		time.Sleep(time.Hour)
		if after, _ := st.count(); after != before {
			t.Error("claims go on")
		}
		schedule(t, st, "b", 0)
		one(t, d)
	})
}
