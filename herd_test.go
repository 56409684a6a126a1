package duetime_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/redisstore"
)

// A herd, thousands of tasks due in one millisecond, is worked off by eight
// workers without a break; a task of another queue that is due in the middle of it, and
// programs that schedule meanwhile, do not wait for it to be over.
func TestHerdHoldsNobodyUp(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		st, err := diskstore.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		outlive(t, func() store.Store { return st })
	})
	t.Run("redis", func(t *testing.T) {
		server := testserver.Redis(t, &testserver.RedisOptions{AOF: true})
		outlive(t, func() store.Store {
			st, err := redisstore.Open(t.Context(), &redisstore.Options{Addrs: []string{server.Addr}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			return st
		})
	})
}

// outlive lets workers in as many processes as open opens stores for work one off.
func outlive(t *testing.T, open func() store.Store) {
	n := 5_000
	if os.Getenv("DUETIME_LONG") == "1" {
		n = 50_000
	}
	at := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	tasks := make([]duetime.NewTask, n)
	for i := range tasks {
		tasks[i] = duetime.NewTask{ID: fmt.Sprint(i), Payload: []byte("payload"), Due: at}
	}
	client := duetime.NewClient(open(), quiet())
	answers, err := client.ScheduleMany(t.Context(), "herd", tasks)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Outcome != duetime.OutcomeCreated {
			t.Fatalf("%+v", a)
		}
	}
	if time.Now().After(at) {
		at = time.Now().Add(10 * time.Millisecond) // a slow machine: they are overdue at once
	}
	if _, err := client.Schedule(t.Context(), "other", duetime.NewTask{ID: "other", Due: at.Add(50 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	var (
		ran   = make([]atomic.Int32, n)
		done  atomic.Int64
		all   = make(chan struct{})
		other = make(chan time.Duration, 1)
	)
	for range 8 {
		worker := duetime.NewWorker(duetime.NewClient(open(), quiet()), &duetime.WorkerOptions{Concurrency: 8})
		worker.Handle("herd", func(_ context.Context, task *duetime.Task) error {
			var i int
			if _, err := fmt.Sscan(task.ID, &i); err != nil {
				return err
			}
			ran[i].Add(1)
			if done.Add(1) == int64(n) {
				close(all)
			}
			return nil
		})
		worker.Handle("other", func(_ context.Context, task *duetime.Task) error {
			other <- time.Since(task.Due)
			return nil
		})
		run(t, worker)
	}
	var slowest time.Duration
	var scheduling sync.WaitGroup
	scheduling.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-all:
				return
			case <-t.Context().Done():
				return
			case <-tick.C:
			}
			began := time.Now()
			if _, err := client.Schedule(t.Context(), "later", duetime.NewTask{ID: fmt.Sprint(i), Delay: time.Hour}); err != nil {
				t.Errorf("schedule: %v", err)
			}
			slowest = max(slowest, time.Since(began))
		}
	})
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d ran in a minute", done.Load(), n)
	}
	took := time.Since(at)
	scheduling.Wait()
	late := <-other
	t.Logf("%d in %v, the other queue's came %v late, a schedule took %v at most", n, took, late, slowest)
	for i := range ran {
		if r := ran[i].Load(); r != 1 {
			t.Errorf("%d ran %d times", i, r)
		}
	}
	// The bounds are for a machine with a hundred other things to do, and far from what
	// waiting for a herd to pass in steps of a hundred a second would be.
	if late > 2*time.Second || slowest > 2*time.Second {
		t.Errorf("the other queue's task came %v late, a schedule took %v", late, slowest)
	}
}
