package mysqlstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// Claimers, schedulers, cancels and leases that run out, in three processes' stores, and
// connections that break in the middle: no deadlock or lock wait reaches a caller, and
// the history is right.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := database(t)
	path := filepath.Join(t.TempDir(), "history.log")
	const n = 2000
	var stores []store.Store
	var mine []*Store
	for i := range 3 {
		log, err := history.Open(path, fmt.Sprint("p", i))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		s := open(t, url, nil)
		mine = append(mine, s)
		stores = append(stores, history.Record(s, log))
	}
	fill(t, stores[0], n/2, time.Now().Add(-time.Hour))
	var broken atomic.Int64
	allowed := func(what string, err error) {
		if err == nil {
			return
		}
		if serverError(err, errDeadlock, errLockTimeout, errChanged, errDuplicate) || errors.Is(err, errUndo) {
			t.Errorf("%s: %v", what, err)
			return
		}
		broken.Add(1)
	}
	var left atomic.Int64
	left.Store(4)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			defer left.Add(-1)
			for from := range n / 2 / 4 / 10 {
				var tasks []store.NewTask
				for k := range 10 {
					id := fmt.Sprintf("order-%09d", n/2+(i*(n/8)+from*10+k))
					tasks = append(tasks, store.NewTask{Queue: "orders", ID: id, Payload: benchPayload, Delay: time.Duration(rand.IntN(50)) * time.Millisecond, Conflict: store.Conflict(rand.IntN(2))})
				}
				_, err := stores[i%3].Schedule(ctx, tasks)
				allowed("schedule", err)
				_, err = stores[i%3].Cancel(ctx, []store.CancelRequest{{Queue: "orders", ID: tasks[rand.IntN(10)].ID}, {Queue: "orders", ID: fmt.Sprintf("order-%09d", rand.IntN(n/2)), Force: true}})
				allowed("cancel", err)
				_, err = stores[i%3].Reschedule(ctx, []store.RescheduleRequest{{Queue: "orders", ID: tasks[rand.IntN(10)].ID, Delay: 20 * time.Millisecond}})
				allowed("reschedule", err)
			}
		})
	}
	for i := range 16 {
		wg.Go(func() {
			for idle := 0; idle < 20; {
				r, err := stores[i%3].Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1 + rand.IntN(20), Lease: 400 * time.Millisecond, Worker: fmt.Sprint(i)}})
				allowed("claim", err)
				if err != nil || len(r[0].Tasks) == 0 {
					if left.Load() == 0 {
						idle++
					}
					time.Sleep(5 * time.Millisecond)
					continue
				}
				idle = 0
				if rand.IntN(10) == 0 {
					continue // dies with what it has
				}
				var list []store.Settlement
				for _, l := range r[0].Tasks {
					list = append(list, store.Settlement{Receipt: l.Receipt, Action: []store.Action{store.Ack, store.Ack, store.Ack, store.Retry, store.Release, store.Extend}[rand.IntN(6)], Lease: 400 * time.Millisecond})
				}
				_, err = stores[i%3].Settle(ctx, list)
				allowed("settle", err)
			}
		})
	}
	done := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		db := admin(t, serverForAll(t), mine[0].database)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var id int64
			if db.QueryRow("SELECT id FROM information_schema.processlist WHERE db = ? AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1", mine[0].database).Scan(&id) == nil {
				_, _ = db.Exec(fmt.Sprint("KILL ", id))
			}
			_, _ = mine[0].Stats(ctx, "orders")
		}
	})
	wg.Wait()
	close(done)
	killer.Wait()
	for end := time.Now().Add(30 * time.Second); ; {
		r, err := stores[0].Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1000, Lease: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		var list []store.Settlement
		for _, l := range r[0].Tasks {
			list = append(list, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
		}
		if _, err := stores[0].Settle(ctx, list); err != nil {
			t.Fatal(err)
		}
		st, err := mine[0].Stats(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if st.Scheduled+st.Ready+st.Leased == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left: %+v", st)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("%d calls failed with their connection", broken.Load())
	checkHistory(t, path)
	recount(t, mine[0])
}
