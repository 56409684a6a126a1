package redisstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// With a million tasks pending, schedules, claims, acks and cancels cost what they
// cost with ten thousand. Both are measured in turn, so that a busy machine is as
// busy for both.
func TestCostDoesNotGrow(t *testing.T) {
	needLong(t)
	const rounds = 5000
	ctx := context.Background()
	sizes := []int{10_000, 1_000_000}
	operations := []string{"schedule", "claim", "ack", "cancel"}
	var stores []*Store
	took := make([]map[string][]time.Duration, len(sizes))
	for i, n := range sizes {
		server := testserver.Redis(t, nil)
		s := open(t, Options{Addrs: []string{server.Addr}, Wake: WakePoll})
		many(t, s, "orders", n, func(i int) store.NewTask {
			return store.NewTask{ID: fmt.Sprintf("order-%014d", i), Payload: make([]byte, 100), Delay: time.Hour + time.Duration(i)*time.Millisecond}
		})
		stores = append(stores, s)
		took[i] = make(map[string][]time.Duration)
	}
	for r := range rounds {
		for i, s := range stores {
			timed := func(what string, f func() error) {
				began := time.Now()
				err := f()
				took[i][what] = append(took[i][what], time.Since(began))
				must(t, err)
			}
			now := store.NewTask{Queue: "orders", ID: fmt.Sprint("now-", r), Payload: make([]byte, 100)}
			timed("schedule", func() error { _, err := s.Schedule(ctx, []store.NewTask{now}); return err })
			var receipt store.Receipt
			timed("claim", func() error {
				got, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1}})
				if err == nil && len(got[0].Tasks) == 1 {
					receipt = got[0].Tasks[0].Receipt
				}
				return err
			})
			timed("ack", func() error {
				got, err := s.Settle(ctx, []store.Settlement{{Receipt: receipt, Action: store.Ack}})
				if err == nil && got[0].Outcome != store.Acked {
					t.Fatalf("%+v", got[0])
				}
				return err
			})
			// Somewhere in the middle of those that are pending.
			id := fmt.Sprintf("order-%014d", r*(sizes[i]/rounds))
			timed("cancel", func() error {
				got, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "orders", ID: id}})
				if err == nil && got[0].Outcome != store.Cancelled {
					t.Fatalf("%+v", got[0])
				}
				return err
			})
		}
	}
	for _, what := range operations {
		var medians []time.Duration
		for i := range sizes {
			slices.Sort(took[i][what])
			medians = append(medians, took[i][what][rounds/2])
		}
		ratio := float64(medians[1]) / float64(medians[0])
		t.Logf("%s: %v with %d pending, %v with %d: %+.0f %%", what, medians[0], sizes[0], medians[1], sizes[1], 100*(ratio-1))
		if ratio > 1.2 {
			t.Errorf("%s costs %.2f times as much with %d pending as with %d", what, ratio, sizes[1], sizes[0])
		}
	}
}
