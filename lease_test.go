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
	"github.com/duetime/duetime/store/memstore"
)

const lease = 3 * time.Second

// worker makes a worker with a lease of three seconds on queue q.
func worker(c *duetime.Client, h duetime.Handler) *duetime.Worker {
	w := duetime.NewWorker(c, &duetime.WorkerOptions{StopTimeout: 2 * time.Second})
	w.HandleWith("q", duetime.QueueOptions{Lease: lease}, h)
	return w
}

func TestHandlerSlowerThanItsLeaseRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, clients := lines(t, 2)
		var runs atomic.Int64
		for _, c := range clients {
			run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
				runs.Add(1)
				time.Sleep(100 * lease)
				return ctx.Err()
			}))
		}
		for i := range 10 {
			schedule(t, clients[0], fmt.Sprint(i), 0)
		}
		time.Sleep(200 * lease)
		if runs.Load() != 10 {
			t.Errorf("10 tasks ran %d times", runs.Load())
		}
		if s, err := clients[0].Stats(t.Context(), "q"); err != nil || s != (duetime.Stats{}) {
			t.Errorf("left: %+v, %v", s, err)
		}
	})
}

// The worker is cut off from the store: nobody else has its leases extended. It
// must notice by itself, when the lease is over and not later.
func TestHandlerIsToldWhenItsLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, clients := lines(t, 2)
		begin := time.Now()
		ended := make(chan error, 1)
		run(t, worker(clients[0], func(ctx context.Context, task *duetime.Task) error {
			lines[0].down.Store(true)
			<-ctx.Done()
			if at := time.Since(begin); at != lease {
				t.Errorf("told after %v", at)
			}
			ended <- context.Cause(ctx)
			return nil // it thinks that all is well; nobody must believe it
		}))
		schedule(t, clients[0], "a", 0)
		synctest.Wait()
		second := make(chan int, 1)
		run(t, worker(clients[1], func(_ context.Context, task *duetime.Task) error {
			if at := time.Since(begin); at < lease || at > lease+time.Second {
				t.Errorf("handed out again after %v", at)
			}
			time.Sleep(10 * lease)
			second <- task.Attempt
			return nil
		}))
		if err := <-ended; !errors.Is(err, duetime.ErrLeaseLost) {
			t.Errorf("cause: %v", err)
		}
		time.Sleep(lease)
		lines[0].down.Store(false)
		time.Sleep(lease)
		if task := get(t, clients[1], "a"); task.State != duetime.StateLeased || task.Lost != 1 {
			t.Errorf("the first worker changed something: %+v", task)
		}
		if attempt := <-second; attempt != 2 {
			t.Errorf("attempt %d", attempt)
		}
		synctest.Wait()
		gone(t, clients[1], "a")
	})
}

func TestHandlerIsToldWhenItsTaskIsTakenAway(t *testing.T) {
	for name, takeAway := range map[string]func(ctx context.Context, c *duetime.Client) error{
		"cancelled": func(ctx context.Context, c *duetime.Client) error { return c.CancelRunning(ctx, "q", "a") },
		"replaced": func(ctx context.Context, c *duetime.Client) error {
			return second(c.Schedule(ctx, "q", duetime.NewTask{ID: "a", Delay: 24 * time.Hour, Replace: true}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lost, settled journal
				opts := quiet()
				opts.Hooks = &duetime.Hooks{
					LeaseLost: func(task *duetime.Task) { lost.note(task.ID) },
					Settled: func(task *duetime.Task, o duetime.Outcome, _ time.Duration, err error) {
						settled.note(task.ID + " " + o.String())
					},
				}
				c := duetime.NewClient(memstore.New(nil), opts)
				defer c.Close()
				ended := make(chan error, 1)
				r := run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return errors.New("must not schedule a retry")
				}))
				schedule(t, c, "a", 0)
				synctest.Wait()
				if err := c.Cancel(t.Context(), "q", "a"); !errors.Is(err, duetime.ErrRunning) {
					t.Errorf("cancel: %v", err)
				}
				if _, err := c.Reschedule(t.Context(), "q", "a", time.Hour); !errors.Is(err, duetime.ErrRunning) {
					t.Errorf("reschedule: %v", err)
				}
				at := time.Now()
				if err := takeAway(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; !errors.Is(err, duetime.ErrLeaseLost) || time.Since(at) > lease/3 {
					t.Errorf("cause %v after %v", err, time.Since(at))
				}
				time.Sleep(time.Hour)
				r.stop(t)
				if l, s := lost.take(), settled.take(); len(l) != 1 || len(s) != 1 || s[0] != "a stale" {
					t.Errorf("hooks: lost %v, settled %v", l, s)
				}
				if name == "cancelled" {
					gone(t, c, "a")
				} else if task := get(t, c, "a"); task.Failures != 0 || task.State != duetime.StateScheduled || task.Generation != 1 {
					t.Errorf("%+v", task)
				}
			})
		})
	}
}

// A worker that can not tell what became of a task keeps trying while the lease
// lasts, so that an outage shorter than that repeats nothing.
func TestAckOutlivesAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newClient(t)
		var runs atomic.Int64
		run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
			runs.Add(1)
			l.noSettle.Store(true)
			return nil
		}))
		for i := range 20 {
			schedule(t, c, fmt.Sprint(i), 0)
		}
		time.Sleep(lease - 1100*time.Millisecond)
		l.noSettle.Store(false)
		time.Sleep(time.Hour)
		if runs.Load() != 20 {
			t.Errorf("20 tasks ran %d times", runs.Load())
		}
		if s, err := c.Stats(t.Context(), "q"); err != nil || s != (duetime.Stats{}) {
			t.Errorf("left: %+v, %v", s, err)
		}
	})
}

// The answer to an Ack is lost: the repetition is stale, and the task is done all
// the same.
func TestAckWhoseAnswerIsLostRepeatsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newClient(t)
		var runs atomic.Int64
		run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
			runs.Add(1)
			l.lose.Store(true)
			return nil
		}))
		schedule(t, c, "a", 0)
		time.Sleep(lease / 2)
		l.lose.Store(false)
		time.Sleep(time.Hour)
		if runs.Load() != 1 {
			t.Errorf("ran %d times", runs.Load())
		}
		gone(t, c, "a")
	})
}

// Extensions fail for a while, shorter than the lease: nothing is lost.
func TestExtensionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newClient(t)
		var runs atomic.Int64
		run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
			runs.Add(1)
			time.Sleep(lease / 4)
			l.noExtend.Store(true)
			time.Sleep(lease / 2)
			l.noExtend.Store(false)
			time.Sleep(5 * lease)
			return ctx.Err()
		}))
		schedule(t, c, "a", 0)
		time.Sleep(time.Hour)
		if runs.Load() != 1 {
			t.Errorf("ran %d times", runs.Load())
		}
		gone(t, c, "a")
	})
}

// A task whose worker dies each time is dead after its limit, with the reason, and
// no failure is counted.
func TestTaskThatKillsItsWorkersDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 5
		lines, clients := lines(t, workers+1)
		me := clients[workers]
		update(t, me, func(s *duetime.Settings) { s.MaxLost = 3 })
		over := make(chan struct{})
		var deaths atomic.Int64
		for i := range workers {
			run(t, worker(clients[i], func(_ context.Context, task *duetime.Task) error {
				if task.ID != "poison" {
					return nil
				}
				deaths.Add(1)
				lines[i].down.Store(true) // nothing more is heard of this process
				<-over
				return nil
			}))
		}
		schedule(t, me, "poison", 0)
		for i := range 20 {
			schedule(t, me, fmt.Sprint("good ", i), time.Duration(i+1)*time.Second)
		}
		time.Sleep(time.Minute)
		task := get(t, me, "poison")
		if task.State != duetime.StateDead || task.LastError != "lease expired" || task.Lost != 3 || task.Failures != 0 || deaths.Load() != 3 {
			t.Errorf("%d deaths; %+v", deaths.Load(), task)
		}
		if s, err := me.Stats(t.Context(), "q"); err != nil || s != (duetime.Stats{Dead: 1}) {
			t.Errorf("left: %+v, %v", s, err)
		}
		close(over)
		for _, l := range lines {
			l.down.Store(false)
		}
	})
}
