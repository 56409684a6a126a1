package dispatch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime/internal/clock"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// slow is a store whose claims take long, and which therefore leases ahead. Like such
// stores it says what its clock shows as it answers.
type slow struct {
	spy
	takes time.Duration
}

const (
	aheadBy   = 30 * time.Millisecond
	claimTime = 12 * time.Millisecond
)

func (s *slow) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	time.Sleep(s.takes / 2)
	results, err := s.spy.Claim(ctx, requests)
	time.Sleep(s.takes / 2)
	for i := range results {
		results[i].Now = results[i].Now.Add(s.takes / 2)
	}
	return results, err
}

func newSlow(t *testing.T, now func() time.Time) (*Dispatcher, *slow) {
	t.Helper()
	st := &slow{spy: spy{Store: memstore.New(&memstore.Options{Ahead: aheadBy, Now: now})}, takes: claimTime}
	return start(t, st, &Options{Clock: steady{clock.New()}}), st
}

// schedule schedules n tasks, one a millisecond.
func (s *slow) fill(t *testing.T, n int, first time.Duration) {
	t.Helper()
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{Queue: "q", ID: fmt.Sprint(i), Delay: first + time.Duration(i)*time.Millisecond}
	}
	if _, err := s.Schedule(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
}

func (s *slow) ack(t *testing.T, leases []store.Lease) {
	t.Helper()
	for _, l := range leases {
		r, err := s.Settle(context.Background(), []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}})
		if err != nil || r[0].Outcome != store.Acked {
			t.Errorf("ack of %s: %v, %v", l.ID, r, err)
		}
	}
}

func TestWhatIsLeasedAheadIsHandedOutTheMomentItIsDue(t *testing.T) {
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, st := newSlow(t, func() time.Time { return time.Now().Add(off) })
				const n = 1000
				st.fill(t, n, time.Second)
				late := 0
				for got := 0; got < n; {
					leases, err := take(t.Context(), d, 100)
					if err != nil {
						t.Fatal(err)
					}
					now := time.Now().Add(off)
					for _, l := range leases {
						if now.Before(l.Due) || l.ClaimedAt.Before(l.Due) || l.ClaimedAt.After(now) {
							t.Fatalf("task %s, due %v, at %v, said to be at %v", l.ID, l.Due, now, l.ClaimedAt)
						}
						if now.After(l.Due) {
							late++
						}
					}
					st.ack(t, leases)
					got += len(leases)
				}
				// The first shows that this taker comes back at once.
				if claims, _ := st.count(); late > 2*int(claimTime/time.Millisecond) || claims > n/10 {
					t.Errorf("%d of %d were late, with %d claims", late, n, claims)
				}
				counts(t, st, 0, 0)
			})
		})
	}
}

func TestOneTaskAtATimeIsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		for i := range 5 {
			schedule(t, st, fmt.Sprint(i), time.Duration(i+1)*time.Minute)
		}
		for range 5 {
			leases, err := take(t.Context(), d, 1)
			if err != nil || len(leases) != 1 {
				t.Fatal(leases, err)
			}
			if late := time.Since(leases[0].Due); late != 0 {
				t.Errorf("task %s is %v late", leases[0].ID, late)
			}
			st.ack(t, leases)
			time.Sleep(time.Second)
		}
	})
}

// One that takes many and works on them before it comes again must not have tasks kept
// for it that others could do.
func TestNothingIsHeldForThoseWhoDoNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		const n = 300
		st.fill(t, n, time.Second)
		var done sync.WaitGroup
		var mu sync.Mutex
		got, worst := 0, time.Duration(0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for worker := range 30 {
			done.Go(func() {
				for {
					leases, err := d.Take(ctx, store.ClaimRequest{Queue: "q", Max: 20, Lease: time.Minute, Worker: fmt.Sprint(worker)})
					if err != nil {
						return
					}
					mu.Lock()
					for _, l := range leases {
						worst = max(worst, time.Since(l.Due))
					}
					st.ack(t, leases)
					if got += len(leases); got == n {
						cancel()
					}
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		done.Wait()
		if worst > 3*claimTime {
			t.Errorf("a task was %v late", worst)
		}
		if st.settles > n+30 {
			t.Errorf("%d settlements for %d tasks", st.settles, n)
		}
	})
}

func TestWhatIsHeldForOneWhoLeavesIsGivenBackBeforeHeHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, at := range []time.Duration{75, 90} { // the claim is on its way; the task is held
			d, st := newSlow(t, nil)
			schedule(t, st, "1", 100*time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), at*time.Millisecond)
			if l, err := take(ctx, d, 1); err == nil {
				t.Fatalf("got %v", l)
			}
			cancel()
			counts(t, st, 0, 0)
			if st.settles == 0 {
				t.Error("nothing was held, so this shows nothing")
			}
			if l := one(t, d); l.ID != "1" || l.Attempt() != 1 {
				t.Errorf("got %s, attempt %d", l.ID, l.Attempt())
			}
		}
	})
}

func TestWhatIsHeldForOneWhoHasGoneIsForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		schedule(t, st, "1", time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-5*time.Millisecond)
		defer cancel()
		var gone sync.WaitGroup
		gone.Go(func() {
			if l, err := take(ctx, d, 1); err == nil {
				t.Errorf("got %v", l)
			}
		})
		synctest.Wait()
		l := one(t, d) // of the same kind
		if late := time.Since(l.Due); late != 0 {
			t.Errorf("%v late", late)
		}
		gone.Wait()
	})
}

func TestWhatNobodyOfItsKindComesForIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		schedule(t, st, "1", time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-5*time.Millisecond)
		defer cancel()
		var gone sync.WaitGroup
		gone.Go(func() { _, _ = take(ctx, d, 1) })
		synctest.Wait()
		leases, err := d.Take(t.Context(), store.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour, Worker: "another"})
		if err != nil || leases[0].Worker != "another" || leases[0].Attempt() != 1 {
			t.Fatalf("got %+v, %v", leases, err)
		}
		if late := time.Since(leases[0].Due); late > grace+3*claimTime {
			t.Errorf("%v late", late)
		}
		st.ack(t, leases)
		gone.Wait()
	})
}

func TestCloseGivesBackWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{975, 990} { // the claim is on its way; the task is held
			d, st := newSlow(t, nil)
			schedule(t, st, "1", time.Second)
			ended := make(chan error)
			go func() {
				_, err := take(t.Context(), d, 1)
				ended <- err
			}()
			time.Sleep(after * time.Millisecond)
			if s, _ := st.Stats(t.Context(), "q"); after == 990 && s.Leased != 1 {
				t.Errorf("%d are leased, so this shows nothing", s.Leased)
			}
			d.Close()
			if err := <-ended; err != store.ErrClosed {
				t.Error(err)
			}
			counts(t, st, 0, 0)
		}
	})
}

func TestNoMoreIsHeldThanCanBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		schedule(t, st, "1", time.Second)
		go func() {
			time.Sleep(time.Second - 15*time.Millisecond) // "1" is held
			schedule(t, st, "2", time.Millisecond)        // which the loop hears of
			time.Sleep(14 * time.Millisecond)
			if s, _ := st.Stats(context.Background(), "q"); s.Leased != 1 {
				t.Errorf("%d are leased for one that can take one", s.Leased)
			}
		}()
		one(t, d)
		if l := one(t, d); time.Since(l.Due) > 2*claimTime+15*time.Millisecond {
			t.Errorf("the second is %v late", time.Since(l.Due))
		}
	})
}

func TestClaimsAreForMoreThanOneTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		st.takes = time.Millisecond
		const n = 1000
		st.fill(t, n, time.Second)
		for got := 0; got < n; {
			leases, err := take(t.Context(), d, 100)
			if err != nil {
				t.Fatal(err)
			}
			st.ack(t, leases)
			got += len(leases)
		}
		if claims, _ := st.count(); claims > n/10 {
			t.Errorf("%d claims for %d tasks, one a millisecond", claims, n)
		}
	})
}

func TestAtMostOnceIsNeverAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		schedule(t, st, "1", time.Second)
		leases, err := d.Take(t.Context(), store.ClaimRequest{Queue: "q", Max: 1, AtMostOnce: true})
		if err != nil || len(leases) != 1 || time.Now().Before(leases[0].Due) {
			t.Fatal(leases, err)
		}
	})
}

// A process may be stopped with tasks in its hands, and their leases end.
func TestWhatWasHeldTooLongIsNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := newSlow(t, nil)
		schedule(t, st, "1", time.Second)
		request := store.ClaimRequest{Queue: "q", Max: 1, Lease: 10 * time.Millisecond, Worker: "w"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-5*time.Millisecond)
		defer cancel()
		var others sync.WaitGroup
		others.Go(func() { _, _ = d.Take(ctx, request) })
		synctest.Wait()
		// Somebody else, so that the loop does not give everything back.
		others.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, _ = d.Take(ctx, store.ClaimRequest{Queue: "q", Max: 1, Lease: time.Minute, Worker: "other"})
		})
		time.Sleep(time.Second + 9*time.Millisecond)
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		leases, err := d.Take(ctx, request)
		if err == nil && time.Until(leases[0].LeaseUntil) < request.Lease/2 {
			t.Errorf("handed out with %v left of its lease", time.Until(leases[0].LeaseUntil))
		}
		others.Wait()
	})
}
