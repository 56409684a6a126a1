package duetime_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store/memstore"
)

func TestTasksRunWhenTheyAreDueAndThenAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		begin := time.Now()
		var ran journal
		w := duetime.NewWorker(c, nil)
		w.Handle("q", func(_ context.Context, task *duetime.Task) error {
			ran.note(fmt.Sprintf("%s %s %s %d %v %s", task.ID, task.Payload, time.Since(begin), task.Attempt, task.Lateness(), task.State))
			return nil
		})
		run(t, w)
		schedule(t, c, "c", 365*24*time.Hour)
		schedule(t, c, "b", 30*time.Minute)
		schedule(t, c, "a", time.Millisecond)
		time.Sleep(366 * 24 * time.Hour)
		want := []string{"a payload of a 1ms 1 0s leased", "b payload of b 30m0s 1 0s leased", "c payload of c 8760h0m0s 1 0s leased"}
		if got := ran.take(); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		for _, id := range []string{"a", "b", "c"} {
			gone(t, c, id)
		}
	})
}

func TestWhatHandlersReturn(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name     string
		handler  duetime.Handler
		state    duetime.State
		failures int
		delay    time.Duration // until it comes again, from now; -1: not looked at
		text     string
	}{
		{"an error", func(context.Context, *duetime.Task) error { return boom }, duetime.StateScheduled, 1, 10 * time.Second, "boom"},
		{"a wrapped verdict", func(context.Context, *duetime.Task) error {
			return fmt.Errorf("outer: %w", duetime.RetryIn(time.Hour, boom))
		}, duetime.StateScheduled, 1, time.Hour, "outer: boom"},
		{"RetryIn without an error", func(context.Context, *duetime.Task) error { return duetime.RetryIn(time.Hour, nil) }, duetime.StateScheduled, 1, time.Hour, "asked for by its handler"},
		{"RetryIn past the last due time", func(context.Context, *duetime.Task) error { return duetime.RetryIn(math.MaxInt64, boom) }, duetime.StateScheduled, 1, math.MaxInt64, "boom"},
		{"Snooze", func(context.Context, *duetime.Task) error { return duetime.Snooze(time.Hour) }, duetime.StateScheduled, 0, time.Hour, ""},
		{"Dead", func(context.Context, *duetime.Task) error { return duetime.Dead(boom) }, duetime.StateDead, 0, -1, "boom"},
		{"a panic", func(context.Context, *duetime.Task) error { panic("ouch") }, duetime.StateScheduled, 1, 10 * time.Second, "panic: ouch\n\ngoroutine"},
		{"a panic with nil", func(context.Context, *duetime.Task) error { panic(any(nil)) }, duetime.StateScheduled, 1, 10 * time.Second, "panic: "},
		{"the end of its goroutine", func(context.Context, *duetime.Task) error { runtime.Goexit(); return nil }, duetime.StateScheduled, 1, 10 * time.Second, "Goexit"},
		{"an error that panics", func(context.Context, *duetime.Task) error { return (*nilError)(nil) }, duetime.StateScheduled, 1, 10 * time.Second, "nilError"},
		{"an endless error", func(context.Context, *duetime.Task) error { return errors.New(strings.Repeat("x\x00", 1<<20)) }, duetime.StateScheduled, 1, 10 * time.Second, "xxx"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newClient(t)
				update(t, c, func(s *duetime.Settings) {
					s.Backoff = duetime.Backoff{Initial: 10 * time.Second, Max: time.Minute, Factor: 2}
				})
				w := duetime.NewWorker(c, &duetime.WorkerOptions{Concurrency: 1})
				w.Handle("q", tc.handler)
				run(t, w)
				for i := range 3 { // one hand does all, so it must survive each
					schedule(t, c, fmt.Sprint(i), 0)
				}
				synctest.Wait()
				for i := range 3 {
					task := get(t, c, fmt.Sprint(i))
					if task.State != tc.state || task.Failures != tc.failures || !strings.Contains(task.LastError, tc.text) || len(task.LastError) > 8<<10 {
						t.Errorf("%+v", task)
					}
					if delay := time.Until(task.Due); tc.delay >= 0 && delay.Round(time.Millisecond) != tc.delay.Round(time.Millisecond) {
						t.Errorf("comes again after %v, want %v", delay, tc.delay)
					}
				}
			})
		})
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestTaskThatKeepsFailingDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		update(t, c, func(s *duetime.Settings) { s.MaxAttempts = 4 })
		var attempts journal
		w := duetime.NewWorker(c, nil)
		w.Handle("q", func(_ context.Context, task *duetime.Task) error {
			attempts.note(fmt.Sprint(task.ID, task.Attempt, task.LastError))
			return fmt.Errorf(" e%d", task.Attempt)
		})
		run(t, w)
		schedule(t, c, "a", 0)
		time.Sleep(time.Hour)
		if got, want := attempts.take(), []string{"a1", "a2 e1", "a3 e2", "a4 e3"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		if task := get(t, c, "a"); task.State != duetime.StateDead || task.LastError != " e4" {
			t.Errorf("%+v", task)
		}
	})
}

func TestNoMoreIsClaimedThanThereAreHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		const hands = 5
		var busy, most, done atomic.Int64
		w := duetime.NewWorker(c, nil)
		w.HandleWith("q", duetime.QueueOptions{Concurrency: hands}, func(_ context.Context, task *duetime.Task) error {
			most.Store(max(most.Load(), busy.Add(1)))
			time.Sleep(time.Duration(1+done.Load()%7) * time.Second)
			busy.Add(-1)
			done.Add(1)
			return nil
		})
		for i := range 100 {
			schedule(t, c, fmt.Sprint(i), 0)
		}
		run(t, w)
		for done.Load() < 100 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if s, err := c.Stats(t.Context(), "q"); err != nil || s.Leased > hands || s.Leased != busy.Load() {
				t.Fatalf("%d leased, %d running, %v", s.Leased, busy.Load(), err)
			}
		}
		if most.Load() != hands {
			t.Errorf("at most %d ran at once, want %d", most.Load(), hands)
		}
	})
}

func TestWorkerLeavesQueuesAloneThatItCanNotHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, clients := lines(t, 2)
		old := duetime.NewWorker(clients[0], nil)
		old.Handle("a", func(context.Context, *duetime.Task) error { return nil })
		run(t, old)
		for i := range 100 {
			if _, err := clients[0].Schedule(t.Context(), "b", duetime.NewTask{ID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if n := lines[0].claimed("b").Load(); n != 0 {
			t.Errorf("the old one made %d claims", n)
		}
		if s, err := clients[0].Stats(t.Context(), "b"); err != nil || s.Ready != 100 {
			t.Errorf("%+v, %v", s, err)
		}
		var done atomic.Int64
		new := duetime.NewWorker(clients[1], nil)
		new.Handle("b", func(_ context.Context, task *duetime.Task) error {
			if task.Attempt == 1 {
				done.Add(1)
			}
			return nil
		})
		run(t, new)
		time.Sleep(time.Second)
		if done.Load() != 100 {
			t.Errorf("%d ran", done.Load())
		}
	})
}

func TestMiddlewareAndHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		opts := quiet()
		opts.Hooks = &duetime.Hooks{
			Scheduled: func(queue string, s *duetime.Scheduled) {
				j.note("scheduled " + queue + s.ID + " " + s.Outcome.String())
			},
			HandedOut: func(task *duetime.Task, late time.Duration) { j.note(fmt.Sprint("handed out ", task.ID, " ", late)) },
			Settled: func(task *duetime.Task, outcome duetime.Outcome, took time.Duration, err error) {
				j.note(fmt.Sprint("settled ", task.ID, " ", outcome, " ", took, " ", err))
			},
		}
		c := duetime.NewClient(memstore.New(nil), opts)
		defer c.Close()
		around := func(name string) duetime.Middleware {
			return func(next duetime.Handler) duetime.Handler {
				return func(ctx context.Context, task *duetime.Task) error {
					j.note(name + " in")
					defer j.note(name + " out")
					return next(ctx, task)
				}
			}
		}
		w := duetime.NewWorker(c, nil)
		w.Use(around("1"), around("2"))
		w.Use(around("3"))
		w.Handle("q", func(_ context.Context, task *duetime.Task) error {
			time.Sleep(time.Second)
			task.ID, task.Payload = "changed by the handler", nil
			return duetime.Dead(errors.New("oh"))
		})
		if _, err := c.Schedule(t.Context(), "q", duetime.NewTask{ID: "a", Due: time.Now().Add(-time.Minute)}); err != nil {
			t.Fatal(err)
		}
		r := run(t, w)
		time.Sleep(2 * time.Second)
		r.stop(t)
		want := []string{"scheduled qa created", "handed out a 1m0s", "1 in", "2 in", "3 in", "3 out", "2 out", "1 out", "settled a dead 1s oh"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

func TestWrongSetUpIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		nothing := func(context.Context, *duetime.Task) error { return nil }
		for want, setUp := range map[string]func(*duetime.Worker){
			"no handlers":    func(*duetime.Worker) {},
			`queue "a b"`:    func(w *duetime.Worker) { w.Handle("a b", nothing) },
			"concurrency -1": func(w *duetime.Worker) { w.HandleWith("q", duetime.QueueOptions{Concurrency: -1}, nothing) },
			"lease 25h":      func(w *duetime.Worker) { w.HandleWith("q", duetime.QueueOptions{Lease: 25 * time.Hour}, nothing) },
			"at-most-once": func(w *duetime.Worker) {
				w.HandleWith("q", duetime.QueueOptions{Lease: time.Hour, AtMostOnce: true}, nothing)
			},
		} {
			w := duetime.NewWorker(c, nil)
			setUp(w)
			if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %s: %v", want, err)
			}
		}
		w := duetime.NewWorker(c, nil)
		w.Handle("q", nothing)
		panics := func(name string, f func()) {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}
		panics("a queue twice", func() { w.Handle("q", nothing) })
		panics("no handler", func() { w.Handle("r", nil) })
		run(t, w).stop(t)
		panics("Handle after Run", func() { w.Handle("s", nothing) })
		panics("Use after Run", func() { w.Use() })
		if err := w.Run(t.Context()); err == nil {
			t.Error("a second Run was let through")
		}
	})
}

func TestOneFailedClaimMakesNothingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newClient(t)
		l.fail = func(claim int64) error {
			if claim == 3 {
				return errLost
			}
			return nil
		}
		late := make(chan time.Duration, 10)
		w := duetime.NewWorker(c, nil)
		w.Handle("q", func(_ context.Context, task *duetime.Task) error {
			late <- time.Since(task.Due)
			return nil
		})
		run(t, w)
		for i := range 10 {
			schedule(t, c, fmt.Sprint(i), time.Duration(i)*time.Minute)
		}
		for range 10 {
			if d := <-late; d > time.Second {
				t.Errorf("%v late", d)
			}
		}
		synctest.Wait()
		if h := c.Health(); h.LastError != nil || time.Since(h.LastSuccess) > time.Second {
			t.Errorf("%+v", h)
		}
	})
}

func TestRetryStormSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		const tasks, rounds = 1000, 5
		var mu sync.Mutex
		runs := make(map[string]int)
		w := duetime.NewWorker(c, &duetime.WorkerOptions{Concurrency: 50})
		w.Handle("q", func(_ context.Context, task *duetime.Task) error {
			mu.Lock()
			defer mu.Unlock()
			runs[task.ID]++
			if task.Attempt != runs[task.ID] {
				t.Errorf("%s: attempt %d is run %d", task.ID, task.Attempt, runs[task.ID])
			}
			if task.Attempt <= rounds {
				return errors.New("all at once")
			}
			return nil
		})
		run(t, w)
		many := make([]duetime.NewTask, tasks)
		for i := range many {
			many[i].ID = fmt.Sprint(i)
		}
		if _, err := c.ScheduleMany(t.Context(), "q", many); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // the backoffs are at most 1+2+4+8+16 s
		mu.Lock()
		defer mu.Unlock()
		for id, n := range runs {
			if n != rounds+1 {
				t.Errorf("%s ran %d times", id, n)
			}
		}
		if s, err := c.Stats(t.Context(), "q"); err != nil || len(runs) != tasks || s != (duetime.Stats{}) {
			t.Errorf("%d ran, %+v left, %v", len(runs), s, err)
		}
	})
}

func TestAtMostOnceNeverRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		var runs atomic.Int64
		w := duetime.NewWorker(c, nil)
		w.HandleWith("q", duetime.QueueOptions{AtMostOnce: true}, func(context.Context, *duetime.Task) error {
			runs.Add(1)
			return errors.New("and that is all")
		})
		run(t, w)
		schedule(t, c, "a", time.Minute)
		time.Sleep(time.Hour)
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
		gone(t, c, "a")
	})
}
