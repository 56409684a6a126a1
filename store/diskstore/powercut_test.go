package diskstore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/duetime/duetime/store"
)

var (
	powercutSeed   = flag.Uint64("powercut.seed", 0, "seed of TestPowerCut; 0: a new one")
	powercutPoints = flag.Int("powercut.points", 240, "how often TestPowerCut cuts the power")
)

// fact is what one id's owner knows of it. want is what the last call that
// returned has promised; doing is the call under way, which may or may not have
// happened when the power goes.
type fact struct {
	want    string // "", "there", "gone", "any"
	payload string
	doing   bool
	version int
}

// ledger is the knowledge of all owners.
type ledger struct {
	mu    sync.Mutex
	facts map[string]*fact
}

func (l *ledger) begin(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.facts[id]
	if f == nil {
		f = &fact{}
		l.facts[id] = f
	}
	f.doing = true
	f.version++
}

func (l *ledger) end(id, want, payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.facts[id]
	f.want, f.payload, f.doing = want, payload, false
}

func (l *ledger) snapshot() map[string]fact {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := make(map[string]fact, len(l.facts))
	for id, f := range l.facts {
		m[id] = *f
	}
	return m
}

// TestPowerCut runs schedules, cancels, reschedules, claims and settlements from
// several goroutines, cuts the power at random points, and opens what is left on
// the disk: whatever had returned must hold there, and the store must be whole.
func TestPowerCut(t *testing.T) {
	seed := *powercutSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -powercut.seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const perRun = 8
	points := *powercutPoints
	if raceDetector {
		points /= 8
	}
	for cut := 0; cut < points; cut += perRun {
		powerCutRun(t, rng, perRun)
		if t.Failed() {
			return
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func powerCutRun(t *testing.T, rng *rand.Rand, cuts int) {
	fs := vfs.NewCrashableMem()
	options := func(fs vfs.FS) *Options {
		// Short logs, so that the cuts meet their changes too.
		return &Options{FS: fs, Logger: quiet(), memTableBytes: 64 << 10}
	}
	s, err := Open("data", options(fs))
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{facts: make(map[string]*fact)}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for owner := range 4 {
		r := rand.New(rand.NewPCG(rng.Uint64(), 2))
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := ownerStep(s, l, owner, r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(rng.Uint64(), 3))
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := workerStep(s, r); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range cuts {
		for range rng.IntN(20) {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
		}
		before := l.snapshot()
		crash := func(fs *vfs.MemFS) *vfs.MemFS {
			return fs.CrashClone(vfs.CrashCloneCfg{
				UnsyncedDataPercent: rng.IntN(101),
				RNG:                 rand.New(rand.NewPCG(rng.Uint64(), 4)),
			})
		}
		left := crash(fs)
		after := l.snapshot()
		// What is left is cut off again while it is open, and once more after it
		// was closed.
		for range 3 {
			again, err := Open("data", options(left))
			if err != nil {
				t.Fatalf("after the power cut: %v", err)
			}
			checkFacts(t, again, before, after)
			next := crash(left)
			checkWhole(t, again)
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(2) == 0 {
				next = crash(left)
			}
			left = next
		}
	}
	stop()
	wg.Wait()
	checkWhole(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// ownerStep is one call about one of the owner's ids.
func ownerStep(s *Store, l *ledger, owner int, r *rand.Rand) error {
	ctx := context.Background()
	id := fmt.Sprintf("%d/%d", owner, r.IntN(25))
	l.begin(id)
	delay := time.Duration(r.IntN(3)) * time.Hour
	switch r.IntN(4) {
	case 0, 1:
		payload := fmt.Sprintf("%s %d %0*d", id, r.Uint64(), r.IntN(2000), 0)
		task := store.NewTask{Queue: "q", ID: id, Payload: []byte(payload), Delay: delay, Conflict: store.ConflictReplace}
		res, err := s.Schedule(ctx, []store.NewTask{task})
		if err != nil || res[0].Err != nil {
			return errors.Join(err, res[0].Err)
		}
		want := "there"
		if delay == 0 {
			want = "any" // the worker may have acked it before we write this down
		}
		l.end(id, want, payload)
	case 2:
		res, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "q", ID: id, Force: true}})
		if err != nil || res[0].Err != nil {
			return errors.Join(err, res[0].Err)
		}
		l.end(id, "gone", "")
	case 3:
		res, err := s.Reschedule(ctx, []store.RescheduleRequest{{Queue: "q", ID: id, Delay: delay}})
		if err != nil || res[0].Err != nil {
			return errors.Join(err, res[0].Err)
		}
		want, payload := "any", ""
		l.mu.Lock()
		if f := l.facts[id]; res[0].Outcome == store.Rescheduled && delay > 0 && f.want == "there" {
			want, payload = "there", f.payload
		}
		l.mu.Unlock()
		l.end(id, want, payload)
	}
	return nil
}

// workerStep claims and settles. It touches only tasks that are due, of which
// the ledger says "any".
func workerStep(s *Store, r *rand.Rand) error {
	ctx := context.Background()
	res, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 1 + r.IntN(10), Lease: time.Minute, AtMostOnce: false}})
	if err != nil || res[0].Err != nil {
		return errors.Join(err, res[0].Err)
	}
	var settle []store.Settlement
	for _, task := range res[0].Tasks {
		action := []store.Action{store.Ack, store.Retry, store.Snooze, store.Bury, store.Release, store.Extend}[r.IntN(6)]
		settle = append(settle, store.Settlement{Receipt: task.Receipt, Action: action})
	}
	results, err := s.Settle(ctx, settle)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
	return err
}

func checkFacts(t *testing.T, s *Store, before, after map[string]fact) {
	t.Helper()
	for id, f := range before {
		if f.doing || after[id].version != f.version {
			continue // a call was under way when the power went
		}
		res, err := s.Get(context.Background(), []store.Key{{Queue: "q", ID: id}})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case f.want == "there" && res[0].Outcome != store.Found:
			t.Errorf("%q was scheduled, and is lost: %v", id, res[0].Outcome)
		case f.want == "there" && string(res[0].Task.Payload) != f.payload:
			t.Errorf("%q has an older payload", id)
		case f.want == "gone" && res[0].Outcome != store.NotFound:
			t.Errorf("%q was cancelled, and is back, %v", id, res[0].Task.State)
		}
	}
}

// checkWhole checks what always holds of an open store: each task is in exactly
// one state and in the id index, the counts equal a recount, and the leases
// have their tasks.
func checkWhole(t testing.TB, s *Store) {
	t.Helper()
	ctx := context.Background()
	names, err := s.Queues(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		q := s.queue(name)
		for {
			// The clock goes on: a task that becomes ready between the count
			// and the lists is seen twice or not at all. Look until it holds.
			st, err := s.Stats(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			var recount store.Stats
			seen := make(map[string]store.State)
			double := ""
			for state, n := range map[store.State]*int64{
				store.StateScheduled: &recount.Scheduled, store.StateReady: &recount.Ready,
				store.StateLeased: &recount.Leased, store.StateDead: &recount.Dead,
			} {
				r := store.ListRequest{Queue: name, State: state, Limit: 500}
				for {
					page, err := s.List(ctx, r)
					if err != nil {
						t.Fatal(err)
					}
					keys := make([]store.Key, len(page.Tasks))
					for i, task := range page.Tasks {
						keys[i] = store.Key{Queue: name, ID: task.ID}
						if was, ok := seen[task.ID]; ok {
							double = fmt.Sprintf("%q is %v and %v", task.ID, was, task.State)
						}
						seen[task.ID] = task.State
						*n++
					}
					found, err := s.Get(ctx, keys)
					if err != nil {
						t.Fatal(err)
					}
					for i, r := range found {
						if r.Outcome != store.Found {
							t.Fatalf("%q is listed and not found: %v", keys[i].ID, r.Outcome)
						}
					}
					if page.Cursor == "" {
						break
					}
					r.Cursor = page.Cursor
				}
			}
			now, err := s.Stats(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if now != st {
				continue
			}
			st.OldestDue, st.NextDue = time.Time{}, time.Time{}
			if st != recount || double != "" {
				t.Fatalf("queue %q: stats %+v, recount %+v; %s", name, st, recount, double)
			}
			break
		}
		q.mu.Lock()
		lower, upper := bounds(kindID, q.num)
		ids := countKeys(t, s, lower, upper)
		lower, upper = bounds(kindLease, q.num)
		leases := countKeys(t, s, lower, upper)
		lower, upper = bounds(kindTask, q.num)
		tasks := countKeys(t, s, lower, upper)
		if int64(ids) != q.pending+q.dead+int64(q.leases.len()) || leases != q.leases.len() || int64(tasks) != q.pending+int64(q.leases.len()) {
			t.Errorf("queue %q: %d ids, %d records, %d leases on disk; %d pending, %d leased, %d dead in memory",
				name, ids, tasks, leases, q.pending, q.leases.len(), q.dead)
		}
		q.mu.Unlock()
	}
}

func countKeys(t testing.TB, s *Store, lower, upper []byte) int {
	t.Helper()
	it, err := s.db.NewIter(iterBounds(lower, upper))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for valid := it.First(); valid; valid = it.Next() {
		n++
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
	return n
}
