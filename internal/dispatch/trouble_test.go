package dispatch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime/internal/clock"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

var errLost = errors.New("connection lost")

func TestOneFailedClaimDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Clock: steady{clock.New()}})
		schedule(t, st, "a", time.Minute)
		st.fail = func(claim int) error {
			if claim == 7 {
				return errLost
			}
			return nil
		}
		l := one(t, d)
		if late := time.Since(l.Due); late != 0 {
			t.Errorf("%v late", late)
		}
	})
}

func TestOutageIsWaitedOutAndSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Clock: steady{clock.New()}})
		begin := time.Now()
		down := func() bool {
			at := time.Since(begin)
			return at > 10*time.Second && at < 5*time.Minute
		}
		st.fail = func(int) error {
			if down() {
				return errLost
			}
			return nil
		}
		schedule(t, st, "a", time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			one(t, d)
			if late := time.Since(begin.Add(5 * time.Minute)); late > backoffMax {
				t.Errorf("handed out %v after the store was back", late)
			}
		})
		time.Sleep(10 * time.Second)
		before, _ := st.count()
		time.Sleep(100 * time.Second)
		after, _ := st.count()
		if n := after - before; n < 90 || n > 220 {
			t.Errorf("%d tries in 100 s of outage", n)
		}
		if h := d.Health(); !errors.Is(h.LastError, errLost) || time.Since(h.LastSuccess) < 95*time.Second {
			t.Errorf("health: %+v", h)
		}
		wg.Wait()
		go func() { _, _ = take(t.Context(), d, 1) }()
		synctest.Wait()
		if h := d.Health(); h.LastError != nil || time.Since(h.LastSuccess) > time.Second {
			t.Errorf("health after it: %+v", h)
		}
	})
}

func TestTicksDoNotHastenTriesOfAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, st := setup(t, &Options{Clock: steady{clock.New()}})
		st.fail = func(int) error { return errLost }
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = st.Schedule(ctx, []store.NewTask{{Queue: "q", ID: "x", Conflict: store.ConflictReplace}})
				time.Sleep(time.Millisecond)
			}
		})
		_, _ = take(ctx, d, 1)
		if n, _ := st.count(); n > 55 {
			t.Errorf("%d tries in 20 s", n)
		}
	})
}

func TestStoreThatCanNotGoOnEndsTheWait(t *testing.T) {
	for _, final := range []error{store.ErrClosed, store.Unsupported("x", "claim")} {
		synctest.Test(t, func(t *testing.T) {
			d, st := setup(t, nil)
			st.fail = func(int) error { return final }
			if _, err := take(t.Context(), d, 1); !errors.Is(err, final) {
				t.Errorf("take: %v, want %v", err, final)
			}
		})
	}
}

// The store's clock is not this process's: five minutes ahead or behind. Delays
// count by the store's, and nothing spins.
func TestClocksThatDisagreeDelayNothing(t *testing.T) {
	for _, apart := range []time.Duration{5 * time.Minute, -5 * time.Minute, 30 * time.Microsecond, -30 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			st := &spy{Store: memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(apart) }})}
			d := start(t, st, &Options{Clock: steady{clock.New()}})
			for _, delay := range []time.Duration{0, 10 * time.Millisecond, 1700 * time.Millisecond} {
				schedule(t, st, delay.String(), delay)
				start := time.Now()
				one(t, d)
				// The store rounds up to the millisecond by its own clock.
				if took := time.Since(start); took < delay || took > delay+time.Millisecond+200*time.Microsecond {
					t.Errorf("apart %v: due after %v, got after %v", apart, delay, took)
				}
			}
			if n, _ := st.count(); n > 30 {
				t.Errorf("apart %v: %d claims", apart, n)
			}
		})
	}
}

func TestStoreThatPromisesInVainMakesNobodySpin(t *testing.T) {
	for name, next := range map[string]func(now time.Time) time.Time{
		"always in a moment": func(now time.Time) time.Time { return now.Add(20 * time.Microsecond) },
		"always now":         func(now time.Time) time.Time { return now },
		"always long ago":    func(now time.Time) time.Time { return now.Add(-time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			d, st := setup(t, &Options{Clock: steady{clock.New()}})
			st.answer = func(results []store.ClaimResult) {
				for i := range results {
					results[i].Next = next(results[i].Now)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _ = take(ctx, d, 1)
			if n, _ := st.count(); n > 1100 {
				t.Errorf("%s: %d claims in 10 s", name, n)
			}
			go func() {
				time.Sleep(time.Second)
				schedule(t, st, "a", 0)
			}()
			if late := time.Since(one(t, d).Due); late > time.Second {
				t.Errorf("%s: %v late", name, late)
			}
		})
	}
}

// jumpy is a wall clock that can be set, on top of the bubble's. Its alarms ring
// when it is, as those of the system do.
type jumpy struct {
	mu     sync.Mutex
	offset time.Duration
	alarms map[*jumpyAlarm]struct{}
}

type jumpyAlarm struct {
	clock *jumpy
	c     chan struct{}
	timer *time.Timer
}

func (j *jumpy) Now() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Now().Add(j.offset)
}

func (j *jumpy) Virtual() bool { return false }

func (j *jumpy) NewAlarm() clock.Alarm {
	a := &jumpyAlarm{clock: j, c: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(time.Hour, a.ring)
	a.timer.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.alarms[a] = struct{}{}
	return a
}

func (a *jumpyAlarm) C() <-chan struct{} { return a.c }
func (a *jumpyAlarm) Set(at time.Time)   { a.timer.Reset(at.Sub(a.clock.Now().Round(0))) }
func (a *jumpyAlarm) Stop()              { a.timer.Stop() }
func (a *jumpyAlarm) ring() {
	select {
	case a.c <- struct{}{}:
	default:
	}
}

func (j *jumpy) jump(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.offset += d
	for a := range j.alarms {
		a.ring()
	}
}

func TestWallClockJumps(t *testing.T) {
	for _, c := range []struct {
		jump time.Duration
		want time.Duration // how long the task really takes, due in an hour
	}{
		{2 * time.Hour, 10 * time.Minute},     // it becomes due by the jump
		{30 * time.Minute, 30 * time.Minute},  // it comes nearer
		{-30 * time.Minute, 90 * time.Minute}, // it goes away, by the jump and no more
		{-5 * time.Hour, 6 * time.Hour},       // far back
	} {
		synctest.Test(t, func(t *testing.T) {
			wall := &jumpy{alarms: make(map[*jumpyAlarm]struct{})}
			st := &spy{Store: memstore.New(&memstore.Options{Now: wall.Now})}
			d := start(t, st, &Options{Clock: wall})
			schedule(t, st, "a", time.Hour)
			begin := time.Now()
			go func() {
				time.Sleep(10 * time.Minute)
				wall.jump(c.jump)
			}()
			one(t, d)
			if took := time.Since(begin); took < c.want || took > c.want+time.Millisecond {
				t.Errorf("jump of %v: got it after %v, want %v", c.jump, took, c.want)
			}
			if n, _ := st.count(); n > int(c.want/time.Second)+10 {
				t.Errorf("jump of %v: %d claims in %v", c.jump, n, c.want)
			}
		})
	}
}
