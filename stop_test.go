package duetime_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime"
)

// busy schedules tasks that run and tasks that are due later, and waits until the
// former run.
func busy(t *testing.T, c *duetime.Client, running *atomic.Int64) {
	t.Helper()
	for i := range 50 {
		schedule(t, c, fmt.Sprint("later ", i), time.Minute)
	}
	for i := range 20 {
		schedule(t, c, fmt.Sprint("now ", i), 0)
	}
	synctest.Wait()
	if running.Load() != 20 {
		t.Fatalf("%d are running", running.Load())
	}
}

func stats(t *testing.T, c *duetime.Client) (scheduled, ready, leased int64) {
	t.Helper()
	s, err := c.Stats(context.Background(), "q")
	if err != nil || s.Dead != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	return s.Scheduled, s.Ready, s.Leased
}

func TestStopLetsHandlersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newClient(t)
		var running, done atomic.Int64
		r := run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
			running.Add(1)
			time.Sleep(1500 * time.Millisecond)
			done.Add(1)
			return ctx.Err()
		}))
		busy(t, c, &running)
		claims := l.claimed("q").Load()
		if took := r.stop(t); took != 1500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if s, ready, leased := stats(t, c); done.Load() != 20 || s != 50 || ready != 0 || leased != 0 {
			t.Errorf("%d done; %d scheduled, %d ready, %d leased", done.Load(), s, ready, leased)
		}
		time.Sleep(time.Hour)
		if n := l.claimed("q").Load(); n != claims {
			t.Errorf("%d claims after the stop", n-claims)
		}
	})
}

func TestStopGivesBackWhatDoesNotFinishInTime(t *testing.T) {
	for name, handler := range map[string]duetime.Handler{
		"handlers that obey": func(ctx context.Context, task *duetime.Task) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), duetime.ErrStopping) {
				return duetime.Dead(context.Cause(ctx))
			}
			return fmt.Errorf("while working: %w", ctx.Err())
		},
		"handlers that do not": func(ctx context.Context, task *duetime.Task) error {
			time.Sleep(20 * time.Minute)
			return errors.New("late")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines, clients := lines(t, 2)
				c := clients[0]
				var running atomic.Int64
				r := run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
					running.Add(1)
					return handler(ctx, task)
				}))
				busy(t, c, &running)
				claims := lines[0].claimed("q").Load()
				if took := r.stop(t); took < 2*time.Second || took > 3*time.Second {
					t.Errorf("took %v", took)
				}
				if s, ready, leased := stats(t, c); s != 50 || ready != 20 || leased != 0 {
					t.Errorf("%d scheduled, %d ready, %d leased", s, ready, leased)
				}
				for i := range 20 {
					if task := get(t, c, fmt.Sprint("now ", i)); task.Failures != 0 || task.Lost != 0 || task.Attempt != 1 || task.LastError != "" {
						t.Errorf("something was counted: %+v", task)
					}
				}
				// Others get them at once, and all the rest in its time.
				var first, all atomic.Int64
				run(t, worker(clients[1], func(ctx context.Context, task *duetime.Task) error {
					if task.Attempt == 1 {
						first.Add(1)
					}
					all.Add(1)
					return nil
				}))
				synctest.Wait()
				if all.Load() != 20 || first.Load() != 20 {
					t.Errorf("%d ran elsewhere, %d as first attempt", all.Load(), first.Load())
				}
				time.Sleep(time.Hour)
				if all.Load() != 70 {
					t.Errorf("%d ran in all", all.Load())
				}
				if n := lines[0].claimed("q").Load(); n != claims {
					t.Errorf("%d claims after the stop", n-claims)
				}
			})
		})
	}
}

func TestSecondStopMeansNow(t *testing.T) {
	for name, stops := range map[string]func(*runner){
		"Stop, Stop":    func(r *runner) { r.Worker.Stop(); r.Worker.Stop(); r.Worker.Stop() },
		"context, Stop": func(r *runner) { r.cancel(); r.Worker.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newClient(t)
				var running atomic.Int64
				r := run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
					running.Add(1)
					<-ctx.Done()
					return ctx.Err()
				}))
				busy(t, c, &running)
				stops(r)
				if took := r.stop(t); took != 0 {
					t.Errorf("took %v", took)
				}
				if s, ready, leased := stats(t, c); s != 50 || ready != 20 || leased != 0 {
					t.Errorf("%d scheduled, %d ready, %d leased", s, ready, leased)
				}
			})
		})
	}
}

func TestAllWorkersStopAtTheSameInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, clients := lines(t, 4)
		var running atomic.Int64
		var rs []*runner
		for _, c := range clients {
			rs = append(rs, run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
				running.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})))
		}
		busy(t, clients[0], &running)
		for _, r := range rs {
			r.cancel()
		}
		for _, r := range rs {
			r.stop(t)
		}
		if s, ready, leased := stats(t, clients[0]); s != 50 || ready != 20 || leased != 0 {
			t.Errorf("%d scheduled, %d ready, %d leased", s, ready, leased)
		}
	})
}

// Stopping while the store is away must not take for ever; the leases run out.
func TestStopDoesNotWaitForAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, clients := lines(t, 2)
		c := clients[0]
		var running atomic.Int64
		r := run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
			running.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}))
		busy(t, c, &running)
		lines[0].down.Store(true)
		if took := r.stop(t); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		time.Sleep(lease)
		if s, ready, leased := stats(t, clients[1]); s != 50 || ready != 20 || leased != 0 {
			t.Errorf("%d scheduled, %d ready, %d leased", s, ready, leased)
		}
	})
}

func TestStopBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		w := worker(c, func(context.Context, *duetime.Task) error { return nil })
		schedule(t, c, "a", 0)
		w.Stop()
		if err := w.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if task := get(t, c, "a"); task.State != duetime.StateReady || task.Attempt != 1 {
			t.Errorf("%+v", task)
		}
	})
}
