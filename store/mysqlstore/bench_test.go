package mysqlstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/batch"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	synced(b)
	storetest.Benchmark(b, storetest.Harness{Open: realHarness})
}

// synced makes the server sync every commit, as it does by default and not in the
// other tests.
func synced(b *testing.B) {
	execute(b, admin(b, serverForAll(b), ""), "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
}

var benchPayload = []byte(`{"order":123456,"shop":"a shop","amount":"12.50","currency":"EUR","items":[1,2,3,4,5,6,7,8,9,10,11,12]}`)

// callers runs f for 0 to n-1 from so many goroutines.
func callers(b *testing.B, goroutines, n int, f func(i int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || b.Failed() {
					return
				}
				if err := f(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkScheduleSingly: 64 goroutines schedule one task a call, which are put
// together as a client puts them, beside one INSERT a call of a table that has no
// more than it needs, over as many connections.
func BenchmarkScheduleSingly(b *testing.B) {
	synced(b)
	b.Run("duetime", func(b *testing.B) {
		st := batch.Wrap(open(b, database(b), nil))
		due := time.Now().Add(time.Hour)
		b.ResetTimer()
		callers(b, 64, b.N, func(i int) error {
			r, err := st.Schedule(context.Background(), []store.NewTask{{Queue: "orders", ID: fmt.Sprintf("order-%09d", i), Due: due.Add(time.Duration(i) * time.Millisecond), Payload: benchPayload}})
			if err == nil && r[0].Outcome != store.Created {
				err = fmt.Errorf("%v, %v", r[0].Outcome, r[0].Err)
			}
			return err
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	})
	b.Run("one INSERT a call", func(b *testing.B) {
		url := database(b)
		db := admin(b, serverForAll(b), url[lastSlash(url)+1:])
		db.SetMaxIdleConns(64)
		execute(b, db, "CREATE TABLE jobs (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64) NOT NULL, due BIGINT NOT NULL, payload BLOB, UNIQUE KEY (name), KEY (due)) ENGINE=InnoDB")
		insert, err := db.Prepare("INSERT INTO jobs (name, due, payload) VALUES (?, ?, ?)")
		if err != nil {
			b.Fatal(err)
		}
		due := time.Now().Add(time.Hour).UnixMilli()
		b.ResetTimer()
		callers(b, 64, b.N, func(i int) error {
			_, err := insert.Exec(fmt.Sprintf("order-%09d", i), due+int64(i), benchPayload)
			return err
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	})
}

func lastSlash(s string) int {
	for i := len(s) - 1; ; i-- {
		if s[i] == '/' {
			return i
		}
	}
}

// BenchmarkScheduleBatches: eight goroutines, a hundred tasks a call.
func BenchmarkScheduleBatches(b *testing.B) {
	synced(b)
	st := open(b, database(b), nil)
	due := time.Now().Add(time.Hour)
	b.ResetTimer()
	const size = 100
	callers(b, 8, (b.N+size-1)/size, func(i int) error {
		tasks := make([]store.NewTask, size)
		for j := range tasks {
			n := i*size + j
			tasks[j] = store.NewTask{Queue: "orders", ID: fmt.Sprintf("order-%09d", n), Due: due.Add(time.Duration(n) * time.Millisecond), Payload: benchPayload}
		}
		_, err := st.Schedule(context.Background(), tasks)
		return err
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkDrain: b.N tasks are due; one process claims them by so many, and acks
// what it has while it claims the next.
func BenchmarkDrain(b *testing.B) {
	synced(b)
	for _, size := range []int{100, 500} {
		b.Run(fmt.Sprint("by=", size), func(b *testing.B) {
			st := open(b, database(b), nil)
			fill(b, st, b.N, time.Now().Add(-time.Hour))
			b.ResetTimer()
			drain(b, st, size, 1)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

func fill(t testing.TB, st store.Store, n int, due time.Time) {
	for from := 0; from < n; from += 5000 {
		tasks := make([]store.NewTask, min(5000, n-from))
		for i := range tasks {
			tasks[i] = store.NewTask{Queue: "orders", ID: fmt.Sprintf("order-%09d", from+i), Due: due, Payload: benchPayload}
		}
		if _, err := st.Schedule(context.Background(), tasks); err != nil {
			t.Fatal(err)
		}
	}
}

// drain claims and acks until nothing is ready.
func drain(t testing.TB, st store.Store, size, claimers int) (done int64) {
	ctx := context.Background()
	acks := make(chan []store.Settlement, 2*claimers)
	var total atomic.Int64
	var ackers, wg sync.WaitGroup
	for range 2 * claimers {
		ackers.Go(func() {
			for list := range acks {
				r, err := st.Settle(ctx, list)
				if err != nil {
					t.Error(err)
				}
				for i := range r {
					if r[i].Outcome != store.Acked {
						t.Errorf("ack: %v", r[i].Outcome)
					}
				}
				total.Add(int64(len(r)))
			}
		})
	}
	for range claimers {
		wg.Go(func() {
			for {
				r, err := st.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: size, Lease: time.Minute, Worker: "w"}})
				if err != nil {
					t.Error(err)
					return
				}
				if len(r[0].Tasks) == 0 {
					return
				}
				list := make([]store.Settlement, len(r[0].Tasks))
				for i, l := range r[0].Tasks {
					list[i] = store.Settlement{Receipt: l.Receipt, Action: store.Ack}
				}
				acks <- list
			}
		})
	}
	wg.Wait()
	close(acks)
	ackers.Wait()
	return total.Load()
}
