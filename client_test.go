package duetime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/duetime/duetime"
)

func TestScheduleGetCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, _ := newClient(t)
		due := time.Now().UTC().Add(time.Hour)
		s, err := c.Schedule(ctx, "q", duetime.NewTask{
			ID: "订单/1 {x}", Payload: []byte{0, 255}, Headers: map[string]string{"a": "b"}, Delay: time.Hour, MaxAttempts: 7,
		})
		if err != nil || s.Outcome != duetime.OutcomeCreated || !s.Due.Equal(due) {
			t.Fatalf("%+v, %v", s, err)
		}
		task, err := c.Get(ctx, "q", "订单/1 {x}")
		if err != nil || task.Queue != "q" || task.ID != "订单/1 {x}" || string(task.Payload) != "\x00\xff" || task.Headers["a"] != "b" ||
			!task.Due.Equal(due) || task.MaxAttempts != 7 || task.State != duetime.StateScheduled || task.Attempt != 1 || task.Lateness() != 0 {
			t.Errorf("%+v, %v", task, err)
		}

		again, err := c.Schedule(ctx, "q", duetime.NewTask{ID: "订单/1 {x}", Payload: []byte("other")})
		if err != nil || again.Outcome != duetime.OutcomeExists || string(again.Existing.Payload) != "\x00\xff" || !again.Due.Equal(due) {
			t.Errorf("%+v, %v", again, err)
		}
		replaced, err := c.Schedule(ctx, "q", duetime.NewTask{ID: "订单/1 {x}", Payload: []byte("other"), Replace: true})
		if err != nil || replaced.Outcome != duetime.OutcomeReplaced {
			t.Errorf("%+v, %v", replaced, err)
		}

		at, err := c.Reschedule(ctx, "q", "订单/1 {x}", 2*time.Hour)
		if err != nil || !at.Equal(due.Add(time.Hour)) {
			t.Errorf("%v, %v", at, err)
		}
		if at, err = c.RescheduleAt(ctx, "q", "订单/1 {x}", due); err != nil || !at.Equal(due) {
			t.Errorf("%v, %v", at, err)
		}
		if err := c.Cancel(ctx, "q", "订单/1 {x}"); err != nil {
			t.Error(err)
		}
		for what, err := range map[string]error{
			"cancel":     c.Cancel(ctx, "q", "订单/1 {x}"),
			"get":        second(c.Get(ctx, "q", "订单/1 {x}")),
			"reschedule": second(c.Reschedule(ctx, "q", "订单/1 {x}", 0)),
		} {
			if !errors.Is(err, duetime.ErrNotFound) || !strings.Contains(err.Error(), `"订单/1 {x}"`) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s of a task that is gone: %v", what, err)
			}
		}

		made, err := c.Schedule(ctx, "q", duetime.NewTask{})
		if id, bad := uuid.Parse(made.ID); err != nil || bad != nil || id.Version() != 7 {
			t.Errorf("%+v, %v", made, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestWrongInputIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, _ := newClient(t)
		for want, call := range map[string]func() error{
			`queue ""`:          func() error { return second(c.Schedule(ctx, "", duetime.NewTask{})) },
			`queue "a b"`:       func() error { return second(c.Schedule(ctx, "a b", duetime.NewTask{})) },
			`delay -1s`:         func() error { return second(c.Schedule(ctx, "q", duetime.NewTask{Delay: -time.Second})) },
			`payload (1048577 `: func() error { return second(c.Schedule(ctx, "q", duetime.NewTask{Payload: make([]byte, 1<<20+1)})) },
			`due_at "10000-01-01`: func() error {
				return second(c.RescheduleAt(ctx, "q", "x", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)))
			},
			`id "\n"`:          func() error { return c.Cancel(ctx, "q", "\n") },
			`limit 1001`:       func() error { return second(c.List(ctx, "q", duetime.StateDead, &duetime.ListOptions{Limit: 1001})) },
			`settings.lease 0`: func() error { return second(c.UpdateSettings(ctx, "q", func(s *duetime.Settings) { s.Lease = 0 })) },
		} {
			err := call()
			var input *duetime.InputError
			if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
				t.Errorf("want %s: %v", want, err)
			}
		}
	})
}

func TestScheduleManyTakesMoreThanOneCallCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		tasks := make([]duetime.NewTask, 25_000)
		for i := range tasks {
			tasks[i] = duetime.NewTask{ID: fmt.Sprint(i), Delay: time.Hour}
		}
		tasks[12_345].Delay = -1
		tasks[23_456].ID = "0"
		answers, err := c.ScheduleMany(t.Context(), "q", tasks)
		if err != nil || len(answers) != len(tasks) {
			t.Fatalf("%d answers, %v", len(answers), err)
		}
		for i, a := range answers {
			want := duetime.OutcomeCreated
			switch i {
			case 12_345:
				want = duetime.OutcomeRefused
			case 23_456:
				want = duetime.OutcomeExists
			}
			if a.Outcome != want || a.ID != tasks[i].ID || (a.Err != nil) != (want == duetime.OutcomeRefused) {
				t.Fatalf("task %d: %+v", i, a)
			}
		}
		if s, err := c.Stats(t.Context(), "q"); err != nil || s.Scheduled != 24_998 {
			t.Errorf("%+v, %v", s, err)
		}
		if answers, err := c.ScheduleMany(t.Context(), "q", nil); err != nil || len(answers) != 0 {
			t.Errorf("%v, %v", answers, err)
		}
	})
}

func TestScheduleThatFailsSaysUnderWhichIDToRepeatIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newClient(t)
		l.down.Store(true)
		s, err := c.Schedule(t.Context(), "q", duetime.NewTask{})
		many, errMany := c.ScheduleMany(t.Context(), "q", make([]duetime.NewTask, 3))
		if !errors.Is(err, errLost) || s.ID == "" || !errors.Is(errMany, errLost) || many[2].ID == "" || !errors.Is(many[2].Err, errLost) {
			t.Errorf("%+v, %v; %+v, %v", s, err, many, errMany)
		}
	})
}

func TestTasksGoesThroughAllPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newClient(t)
		for i := range 25 {
			schedule(t, c, fmt.Sprint(i), time.Duration(i+1)*time.Minute)
		}
		n := 0
		for task, err := range c.Tasks(t.Context(), "q", duetime.StateScheduled, &duetime.ListOptions{Limit: 10}) {
			if err != nil || task.ID != fmt.Sprint(n) || task.Payload != nil {
				t.Fatalf("%d: %+v, %v", n, task, err)
			}
			n++
		}
		if n != 25 {
			t.Errorf("%d tasks", n)
		}
		for task := range c.Tasks(t.Context(), "q", duetime.StateScheduled, &duetime.ListOptions{Payloads: true}) {
			if string(task.Payload) != "payload of 0" {
				t.Errorf("%+v", task)
			}
			break
		}
		_ = l.Close()
		for _, err := range c.Tasks(t.Context(), "q", duetime.StateScheduled, nil) {
			if !errors.Is(err, duetime.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

func TestNoChangeOfSettingsIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { update(t, c, func(s *duetime.Settings) { s.MaxAttempts++ }) })
		}
		wg.Wait()
		if s, err := c.Settings(t.Context(), "q"); err != nil || s.MaxAttempts != 35 || s.Version != 10 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestPauseRedrivePurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, _ := newClient(t)
		var bury bool
		var done journal
		w := duetime.NewWorker(c, nil)
		w.Handle("q", func(_ context.Context, task *duetime.Task) error {
			done.note(task.ID)
			if bury {
				return duetime.Dead(nil)
			}
			return nil
		})
		if err := c.Pause(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		bury = true
		r := run(t, w)
		for i := range 3 {
			schedule(t, c, fmt.Sprint(i), 0)
		}
		time.Sleep(time.Minute)
		if e := done.take(); len(e) != 0 {
			t.Errorf("paused, and yet %v ran", e)
		}
		if err := c.Resume(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if e := done.take(); len(e) != 3 {
			t.Errorf("ran: %v", e)
		}
		r.stop(t)
		if n, err := c.Redrive(ctx, "q", []string{"1", "nobody"}); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := c.RedriveAll(ctx, "q"); n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := c.Redrive(ctx, "q", nil); n != 0 || err != nil { // no ids are none, not all
			t.Errorf("%d, %v", n, err)
		}
		if n, err := c.Purge(ctx, "q", duetime.StateReady); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if names, err := c.Queues(ctx); err != nil || len(names) != 1 || names[0] != "q" {
			t.Errorf("%v, %v", names, err)
		}
	})
}

func TestClosedClientSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t)
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		_, err := c.Schedule(t.Context(), "q", duetime.NewTask{})
		w := duetime.NewWorker(c, nil)
		w.Handle("q", func(context.Context, *duetime.Task) error { return nil })
		if errRun := w.Run(t.Context()); !errors.Is(err, duetime.ErrClosed) || !errors.Is(errRun, duetime.ErrClosed) {
			t.Errorf("%v, %v", err, errRun)
		}
	})
}

func TestTypedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type order struct {
			Number int64
			Buyer  string
		}
		c, _ := newClient(t)
		orders := duetime.QueueOf[order]("q", nil)
		got := make(chan order, 1)
		w := duetime.NewWorker(c, nil)
		orders.Handle(w, func(_ context.Context, _ *duetime.Task, o order) error {
			got <- o
			return nil
		})
		run(t, w)
		want := order{Number: 9007199254740993, Buyer: "敏琳张"}
		if _, err := orders.Schedule(t.Context(), c, want, duetime.NewTask{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if o := <-got; o != want {
			t.Errorf("got %+v", o)
		}
		if _, err := c.Schedule(t.Context(), orders.Name(), duetime.NewTask{ID: "2", Payload: []byte("no JSON")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if task := get(t, c, "2"); task.Failures != 1 || !strings.Contains(task.LastError, "decode the payload") {
			t.Errorf("%+v", task)
		}
		broken := duetime.QueueOf[chan int]("q", duetime.JSON)
		if _, err := broken.Schedule(t.Context(), c, nil, duetime.NewTask{ID: "3"}); err == nil || !strings.Contains(err.Error(), "encode the payload") {
			t.Error(err)
		}
	})
}
