package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// fill schedules n tasks, a tenth of which are made dead, and leases three.
func fill(t *testing.T, s *Store, n int) (leases []store.Lease) {
	t.Helper()
	ctx := context.Background()
	past := time.Now().Add(-time.Hour)
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{Queue: "q", ID: fmt.Sprintf("%05d", i), Payload: fmt.Appendf(nil, "payload %d", i), Due: past.Add(time.Duration(i) * time.Millisecond)}
	}
	if _, err := s.Schedule(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	claim := func(n int) []store.Lease {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: n, Lease: time.Minute}})
		if err != nil || len(r[0].Tasks) != n {
			t.Fatalf("claimed %d of %d: %v", len(r[0].Tasks), n, err)
		}
		return r[0].Tasks
	}
	var bury []store.Settlement
	for _, l := range claim(n / 10) {
		bury = append(bury, store.Settlement{Receipt: l.Receipt, Action: store.Bury, Error: "no"})
	}
	if _, err := s.Settle(ctx, bury); err != nil {
		t.Fatal(err)
	}
	return claim(3)
}

func TestReshard(t *testing.T) {
	deployments(t, func(t *testing.T, o Options) {
		for _, numbers := range [][]int{{1, 16}, {16, 1}, {3, 5}} {
			t.Run(fmt.Sprint(numbers), func(t *testing.T) {
				o := o
				o.Shards, o.Prefix = numbers[0], nextPrefix()
				s, other := open(t, o), open(t, o)
				ctx := context.Background()
				leases := fill(t, s, 1000)
				go func() {
					time.Sleep(300 * time.Millisecond)
					_, _ = other.Settle(ctx, []store.Settlement{
						{Receipt: leases[0].Receipt, Action: store.Ack},
						{Receipt: leases[1].Receipt, Action: store.Retry, Error: "again"},
						{Receipt: leases[2].Receipt, Action: store.Release},
					})
				}()
				if err := s.Reshard(ctx, "q", numbers[1], nil); err != nil {
					t.Fatal(err)
				}
				for _, st := range []*Store{s, other} { // other does not know yet
					stats, err := st.Stats(ctx, "q")
					if err != nil || stats.Ready != 899 || stats.Dead != 100 || stats.Leased != 0 || stats.Scheduled != 0 {
						t.Fatalf("stats: %+v, %v", stats, err)
					}
				}
				checkWhole(t, s)
				r, err := other.Schedule(ctx, []store.NewTask{{Queue: "q", ID: "00500"}, {Queue: "q", ID: "new", Due: time.Now().Add(-2 * time.Hour)}})
				if err != nil || r[0].Outcome != store.Exists || r[1].Outcome != store.Created {
					t.Fatal(r, err)
				}
				got, err := other.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 1000}})
				if err != nil || len(got[0].Tasks) != 900 {
					t.Fatalf("claimed %d: %v", len(got[0].Tasks), err)
				}
				for i, l := range got[0].Tasks {
					if i == 0 && l.ID != "new" || i > 1 && l.Due.Before(got[0].Tasks[i-1].Due) {
						t.Fatalf("%d: %s due %v", i, l.ID, l.Due)
					}
					if l.ID != "new" && string(l.Payload) != fmt.Sprintf("payload %d", atoi(l.ID)) {
						t.Fatalf("task %s has payload %q", l.ID, l.Payload)
					}
				}
				for _, l := range leases {
					r, err := s.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}})
					if err != nil || r[0].Outcome != store.Stale {
						t.Fatal(r, err)
					}
				}
			})
		}
	})
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscanf(s, "%d", &n)
	return n
}

// While a queue is moved to and fro, several processes schedule, cancel and
// claim; every so often the move is broken off. In the end every task has run
// once, or was cancelled and has not.
func TestReshardWhileRunning(t *testing.T) {
	deployments(t, func(t *testing.T, o Options) {
		o.Shards, o.Prefix = 1, nextPrefix()
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		total := 3000
		var runs sync.Map
		var cancelled, ran atomic.Int64
		var wg sync.WaitGroup
		fail := func(format string, args ...any) { t.Errorf(format, args...); stop() }

		wg.Go(func() { // schedules, and cancels each seventh
			s := open(t, o)
			for i := 0; i < total && ctx.Err() == nil; i += 10 {
				tasks := make([]store.NewTask, 10)
				for k := range tasks {
					tasks[k] = store.NewTask{Queue: "q", ID: fmt.Sprint(i + k), Delay: time.Duration(k*k) * 5 * time.Millisecond}
				}
				r, err := s.Schedule(ctx, tasks)
				if err != nil {
					fail("schedule: %v", err)
					return
				}
				for k := range r {
					if r[k].Outcome != store.Created {
						fail("schedule %s: %v (%v)", tasks[k].ID, r[k].Outcome, r[k].Err)
					}
				}
				c, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "q", ID: fmt.Sprint(i + 9)}})
				if err != nil {
					fail("cancel: %v", err)
				} else if c[0].Outcome == store.Cancelled {
					cancelled.Add(1)
					if _, loaded := runs.LoadOrStore(fmt.Sprint(i+9), "cancelled"); loaded {
						fail("task %d ran and was cancelled", i+9)
					}
				} else if c[0].Outcome == store.NotFound {
					if _, there := runs.Load(fmt.Sprint(i + 9)); !there {
						time.Sleep(300 * time.Millisecond) // its claim may be on its way to us
						if _, there := runs.Load(fmt.Sprint(i + 9)); !there {
							fail("task %d was not found, and has not run", i+9)
						}
					}
				}
			}
		})
		for range 2 {
			wg.Go(func() {
				s := open(t, o)
				for ctx.Err() == nil && int(ran.Load()+cancelled.Load()) < total {
					r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 20, Lease: time.Minute}})
					if err != nil {
						if ctx.Err() == nil {
							fail("claim: %v", err)
						}
						return
					}
					var acks []store.Settlement
					for _, l := range r[0].Tasks {
						if was, loaded := runs.LoadOrStore(l.ID, "ran"); loaded {
							fail("task %s runs, and %v before; attempt %d", l.ID, was, l.Attempt())
						}
						acks = append(acks, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
					}
					if len(acks) == 0 {
						time.Sleep(2 * time.Millisecond)
						continue
					}
					a, err := s.Settle(ctx, acks)
					if err != nil {
						fail("settle: %v", err)
						return
					}
					for i := range a {
						if a[i].Outcome != store.Acked {
							fail("ack of %s: %v", r[0].Tasks[i].ID, a[i].Outcome)
						}
					}
					ran.Add(int64(len(acks)))
				}
			})
		}
		wg.Go(func() {
			s := open(t, o)
			for n := 0; ctx.Err() == nil && int(ran.Load()+cancelled.Load()) < total; n++ {
				shards := []int{4, 1, 7}[n%3]
				for patience := 10 * time.Millisecond; ; patience += 10 * time.Millisecond {
					cut, cancel := context.WithTimeout(ctx, patience)
					err := s.Reshard(cut, "q", shards, nil)
					cancel()
					if err == nil || ctx.Err() != nil {
						break
					}
					if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "i/o timeout") && !strings.Contains(err.Error(), "does not exist") {
						fail("reshard: %v", err)
						return
					}
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		timeout := time.AfterFunc(60*time.Second, stop)
		wg.Wait()
		timeout.Stop()
		if n := int(ran.Load() + cancelled.Load()); n != total {
			t.Fatalf("%d ran and %d were cancelled, of %d", ran.Load(), cancelled.Load(), total)
		}
		t.Logf("%d ran, %d cancelled", ran.Load(), cancelled.Load())
		checkWhole(t, open(t, o))
	})
}
