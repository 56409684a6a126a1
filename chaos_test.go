package duetime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store/faultstore"
	"github.com/duetime/duetime/store/memstore"
)

// A fifth of all calls goes wrong, in every way there is. Nothing may be lost or
// early, what was cancelled may not run, and what runs again must say so. The
// seed of a failure is in its output: set DUETIME_SEED to see it again.
func TestNothingIsLostWhenCallsGoWrong(t *testing.T) {
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("DUETIME_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("DUETIME_SEED=%d", seed)
	synctest.Test(t, func(t *testing.T) {
		const tasks, clients = 400, 3
		shared := memstore.New(nil)
		var all []*duetime.Client
		var faulty []*faultstore.Store
		for i := range clients {
			f := faultstore.New(shared, faultstore.Random(seed+uint64(i), 0.2,
				faultstore.Fault{FailBefore: errLost},
				faultstore.Fault{FailAfter: errLost},
				faultstore.Fault{Twice: true},
				faultstore.Fault{DelayBefore: 300 * time.Millisecond},
				faultstore.Fault{DelayAfter: 2 * time.Second},
			))
			faulty = append(faulty, f)
			c := duetime.NewClient(f, quiet())
			t.Cleanup(func() { _ = c.Close() })
			all = append(all, c)
		}
		var mu sync.Mutex
		last := make(map[string]int) // id → the last attempt
		done := make(map[string]bool)
		cancelled := make(map[string]bool)
		for i, c := range all {
			run(t, worker(c, func(ctx context.Context, task *duetime.Task) error {
				mu.Lock()
				if time.Now().Before(task.Due) {
					t.Errorf("%s came %v early", task.ID, time.Until(task.Due))
				}
				if cancelled[task.ID] {
					t.Errorf("%s was cancelled, and runs", task.ID)
				}
				// It stays the same only where the claim before was released.
				if task.Attempt < last[task.ID] {
					t.Errorf("%s: attempt %d after %d", task.ID, task.Attempt, last[task.ID])
				}
				last[task.ID] = task.Attempt
				mu.Unlock()
				n, _ := strconv.Atoi(task.ID)
				time.Sleep(time.Duration(n%9) * time.Second) // some longer than the lease
				if n%10 == i {
					return errors.New("not on this worker")
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				mu.Lock()
				done[task.ID] = true
				mu.Unlock()
				return nil
			}))
		}
		var wg sync.WaitGroup
		for i := range tasks {
			wg.Go(func() {
				c, id := all[i%clients], fmt.Sprint(i)
				// Far enough away that no repeated Schedule comes after the task is done.
				due := time.Now().Add(5*time.Second + time.Duration(i)*100*time.Millisecond)
				for {
					if _, err := c.Schedule(t.Context(), "q", duetime.NewTask{ID: id, Due: due}); err == nil {
						break
					}
				}
				if i%5 != 0 || i < 100 {
					return
				}
				for {
					err := c.Cancel(t.Context(), "q", id)
					if err == nil || errors.Is(err, duetime.ErrNotFound) { // the answer of the first may be lost
						mu.Lock()
						if !done[id] && last[id] == 0 {
							cancelled[id] = true
						}
						mu.Unlock()
						return
					}
					if errors.Is(err, duetime.ErrRunning) {
						return
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(6 * time.Hour) // the backoff alone may take an hour
		mu.Lock()
		defer mu.Unlock()
		for i := range tasks {
			if id := fmt.Sprint(i); !done[id] && !cancelled[id] {
				t.Errorf("%s was lost", id)
			}
		}
		if s, err := shared.Stats(t.Context(), "q"); err != nil || s != (duetime.Stats{}) {
			t.Errorf("left: %+v, %v", s, err)
		}
		if faulty[0].Calls(faultstore.Settle) == 0 || len(cancelled) == 0 {
			t.Error("the test did not test what it should")
		}
	})
}
