package tieredstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// usedMemory is what Redis needs, in bytes.
func usedMemory(t *testing.T, r *testserver.RedisServer) int64 {
	t.Helper()
	info, err := r.Info("memory")
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	if _, err := fmt.Sscan(info["used_memory"], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// lateness has a worker run 1,000 tasks a second, which are scheduled before, and says
// how late they came. In the middle it calls happen.
func lateness(t *testing.T, s *Store, name string, length time.Duration, happen func()) {
	t.Helper()
	n := int(length/time.Second) * 1000
	client := duetime.NewClient(s, &duetime.ClientOptions{Logger: quiet()})
	start := time.Now().Add(3 * time.Second)
	tasks := make([]duetime.NewTask, n)
	for i := range tasks {
		tasks[i] = duetime.NewTask{ID: fmt.Sprint(name, i), Payload: make([]byte, 100), Due: start.Add(rand.N(length))}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	late := make([]time.Duration, n)
	ran := make(map[string]int)
	var mu sync.Mutex
	worker := duetime.NewWorker(client, nil)
	worker.Handle(orders, func(_ context.Context, task *duetime.Task) error {
		d := time.Now().Round(0).Sub(task.Due)
		mu.Lock()
		defer mu.Unlock()
		ran[task.ID]++
		if k := len(ran); k <= n {
			late[k-1] = d
		}
		if len(ran) == n {
			cancel()
		}
		return nil
	})
	var workers sync.WaitGroup
	workers.Go(func() { _ = worker.Run(ctx) })
	if _, err := client.ScheduleMany(ctx, orders, tasks); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(start.Add(length / 2)))
	happen()
	select {
	case <-ctx.Done():
	case <-time.After(length + 20*time.Second):
	}
	cancel()
	workers.Wait()
	if len(ran) != n {
		t.Fatalf("%s: %d of %d ran", name, len(ran), n)
	}
	for id, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
	slices.Sort(late)
	if late[0] < 0 {
		t.Errorf("%s: one ran %v early", name, -late[0])
	}
	t.Logf("%s: %d tasks at 1,000/s: lateness p50 %v, p99 %v, max %v", name, n, late[n/2], late[n*99/100], late[n-1])
}

// Two million tasks over 30 days: Redis has the next minutes of them only, and is
// emptied in the middle.
func TestTwoMillion(t *testing.T) {
	if os.Getenv("DUETIME_LONG") == "" {
		t.Skip("takes minutes; DUETIME_LONG=1 runs it")
	}
	const n, span = 2_000_000, 30 * 24 * time.Hour
	testserver.Need(t, "mariadb")
	m := testserver.MariaDB(t, &testserver.MariaDBOptions{Config: []string{"--innodb-buffer-pool-size=2G"}})
	r := testserver.Redis(t, nil)
	p := &pair{url: "mysql://root@" + m.Addr + "/" + m.Database, redis: r.Addr, prefix: "own"}
	s := p.open(t)
	empty := usedMemory(t, r)
	began := time.Now()
	var next atomic.Int64
	var fillers sync.WaitGroup
	for range 4 {
		fillers.Go(func() {
			for {
				from := int(next.Add(store.MaxBatch)) - store.MaxBatch
				if from >= n {
					return
				}
				tasks := make([]store.NewTask, 0, store.MaxBatch)
				for i := from; i < min(n, from+store.MaxBatch); i++ {
					tasks = append(tasks, store.NewTask{
						Queue: orders, ID: fmt.Sprintf("order-%014d", i), Payload: make([]byte, 100),
						Delay: time.Minute + time.Duration(i)*(span/n),
					})
				}
				if _, err := s.Schedule(context.Background(), tasks); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	fillers.Wait()
	t.Logf("%d tasks scheduled, %.0f a second", n, n/time.Since(began).Seconds())
	p.loaded(t, s, 30*time.Second)
	entries, used := len(p.entries(t, orders)), usedMemory(t, r)-empty
	share := int(n * (s.opts.Window + s.step()) / span)
	t.Logf("the window has %d tasks (its share is %d); Redis needs %d bytes more than when it was empty", entries, share, used)
	if entries > 2*share || used > 2<<20 {
		t.Errorf("the window has %d tasks and %d bytes, its share would be %d tasks", entries, used, share)
	}
	lateness(t, s, "steady", 10*time.Second, func() {})
	lateness(t, s, "emptied", 10*time.Second, func() {
		if _, err := r.Do("FLUSHALL"); err != nil {
			t.Error(err)
		}
		began := time.Now()
		p.loaded(t, s, 10*time.Second)
		t.Logf("after FLUSHALL the window was back within %v", time.Since(began))
	})
}
