package mysqlstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// Two million tasks that wait make claim, ack and cancel no more than a quarter
// dearer than ten thousand do. Both take turns on one server, and medians are
// compared, as other work of the machine is the same for both.
//
// A hundred cancels in one call, of tasks picked at random among all of them, touch
// some three hundred pages of the three trees that are in no cache of the processor,
// where the ten thousand fit into one: that is 10 us a task beside a commit that is
// shared by the hundred, 1.5 times as much where the disk syncs in 0.3 ms. What is
// asserted of it is that it does not become worse.
func TestCostDoesNotGrow(t *testing.T) {
	if os.Getenv("DUETIME_LONG") == "" {
		t.Skip("long: run with make test-long")
	}
	testserver.NeedMariaDB(t)
	m := testserver.MariaDB(t, &testserver.MariaDBOptions{Config: []string{"--innodb-buffer-pool-size=2G", "--innodb-log-file-size=1G"}})
	ctx := context.Background()
	const rounds, warm, size = 80, 10, 100
	type side struct {
		*Store
		n     int
		took  map[string][]time.Duration
		ids   []int
		bytes float64
	}
	var sides []*side
	for _, n := range []int{10_000, 2_000_000} {
		s := open(t, databaseOn(t, m), nil)
		all := n + (rounds+warm)*(size+1) // what is cancelled
		fillRows(t, s, "orders", all, fmt.Sprintf("%d + (n * 7919) %% 1000003 * 1000", time.Now().Add(time.Hour).UnixMilli()))
		d := &side{Store: s, n: n, took: make(map[string][]time.Duration), ids: rand.Perm(all)}
		execute(t, s.db, withTables("ANALYZE TABLE {task}", s.database))
		if err := s.db.QueryRow("SELECT (data_length + index_length) / table_rows FROM information_schema.tables WHERE table_schema = '" + s.database + "' AND table_name = 'duetime_task'").Scan(&d.bytes); err != nil {
			t.Fatal(err)
		}
		sides = append(sides, d)
	}
	for round := range rounds + warm {
		for _, d := range sides {
			timed := func(what string, f func() error) {
				t.Helper()
				start := time.Now()
				if err := f(); err != nil {
					t.Fatal(err)
				}
				if round >= warm { // the first warm up
					d.took[what] = append(d.took[what], time.Since(start))
				}
			}
			tasks := make([]store.NewTask, size)
			for i := range tasks {
				tasks[i] = store.NewTask{Queue: "orders", ID: fmt.Sprint("now ", round, "/", i), Payload: benchPayload}
			}
			timed("schedule", func() error { _, err := d.Schedule(ctx, tasks); return err })
			acks := make([]store.Settlement, size)
			timed("claim", func() error {
				r, err := d.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: size, Lease: time.Minute}})
				if err == nil && len(r[0].Tasks) != size {
					err = fmt.Errorf("claimed %d", len(r[0].Tasks))
				}
				for i := range acks {
					if err == nil {
						acks[i] = store.Settlement{Receipt: r[0].Tasks[i].Receipt, Action: store.Ack}
					}
				}
				return err
			})
			timed("ack", func() error { _, err := d.Settle(ctx, acks); return err })
			cancels := make([]store.CancelRequest, size)
			for i := range cancels {
				cancels[i] = store.CancelRequest{Queue: "orders", ID: fmt.Sprintf("order-%09d", d.ids[0])}
				d.ids = d.ids[1:]
			}
			timed("cancel", func() error {
				r, err := d.Cancel(ctx, cancels)
				if err == nil && r[size-1].Outcome != store.Cancelled {
					err = fmt.Errorf("%v", r[size-1].Outcome)
				}
				return err
			})
			timed("one cancel", func() error {
				one := store.CancelRequest{Queue: "orders", ID: fmt.Sprintf("order-%09d", d.ids[0])}
				d.ids = d.ids[1:]
				r, err := d.Cancel(ctx, []store.CancelRequest{one})
				if err == nil && r[0].Outcome != store.Cancelled {
					err = fmt.Errorf("%v", r[0].Outcome)
				}
				return err
			})
			timed("stats", func() error { _, err := d.Stats(ctx, "orders"); return err })
		}
	}
	median := func(all []time.Duration) time.Duration {
		slices.Sort(all)
		return all[len(all)/2]
	}
	for _, what := range []string{"schedule", "claim", "ack", "cancel", "one cancel", "stats"} {
		small, large := median(sides[0].took[what]), median(sides[1].took[what])
		ratio := float64(large) / float64(small)
		t.Logf("%s: %v with %d waiting, %v with %d: %.2f ×", what, small, sides[0].n, large, sides[1].n, ratio)
		limit := 1.25
		if what == "cancel" {
			limit = 2
		}
		if ratio > limit && what != "schedule" {
			t.Errorf("%s costs %.2f times as much", what, ratio)
		}
	}
	t.Logf("%.0f bytes a task", sides[1].bytes)
}
