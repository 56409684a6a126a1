package redisstore

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// commandStat is how often a server has carried out which command, by itself and in
// scripts, and how long it took.
type commandStat struct{ calls, micros int64 }

func commandStats(t testing.TB, r *testserver.RedisServer) map[string]commandStat {
	t.Helper()
	info, err := r.Info("commandstats")
	must(t, err)
	stats := make(map[string]commandStat)
	for name, text := range info {
		var s commandStat
		if _, err := fmt.Sscanf(text, "calls=%d,usec=%d", &s.calls, &s.micros); err != nil {
			t.Fatalf("%s: %q: %v", name, text, err)
		}
		stats[strings.TrimPrefix(name, "cmdstat_")] = s
	}
	return stats
}

// many schedules n tasks in one call after another of at most 20,000.
func many(t testing.TB, s *Store, queue string, n int, make func(i int) store.NewTask) {
	t.Helper()
	for from := 0; from < n; from += store.MaxBatch {
		batch := []store.NewTask{}
		for i := from; i < min(n, from+store.MaxBatch); i++ {
			task := make(i)
			task.Queue = queue
			batch = append(batch, task)
		}
		results, err := s.Schedule(context.Background(), batch)
		must(t, err)
		for i := range results {
			if results[i].Outcome != store.Created {
				t.Fatalf("%s: %+v", batch[i].ID, results[i])
			}
		}
	}
}

// drainAll claims until nothing is ready, and returns the receipts.
func drainAll(t testing.TB, s *Store, queue string, lease time.Duration) []store.Settlement {
	t.Helper()
	var all []store.Settlement
	for {
		r, err := s.Claim(context.Background(), []store.ClaimRequest{{Queue: queue, Max: store.MaxBatch, Lease: lease}})
		must(t, err)
		if len(r[0].Tasks) == 0 {
			return all
		}
		for i := range r[0].Tasks {
			all = append(all, store.Settlement{Receipt: r[0].Tasks[i].Receipt, Action: store.Ack})
		}
	}
}

func settleAll(t testing.TB, s *Store, all []store.Settlement, want store.Outcome) {
	t.Helper()
	for part := range slices.Chunk(all, store.MaxBatch) {
		results, err := s.Settle(context.Background(), part)
		must(t, err)
		for i := range results {
			if results[i].Outcome != want {
				t.Fatalf("%+v, want %v", results[i], want)
			}
		}
	}
}

// B28, B29: 20,000 of everything at once is work in slices, none of which holds
// the server up for long.
func TestTwentyThousandAtOnce(t *testing.T) {
	const n, queue = 20_000, "orders"
	server := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--slowlog-log-slower-than", "20000", "--slowlog-max-len", "1000"}})
	s := open(t, Options{Addrs: []string{server.Addr}})
	ctx := context.Background()
	settings := store.DefaultSettings()
	settings.MaxLost = 2
	_, err := s.PutSettings(ctx, queue, settings)
	must(t, err)
	step := func(what string, f func()) {
		t.Helper()
		do(t, server, "CONFIG", "RESETSTAT")
		began := time.Now()
		f()
		took := time.Since(began)
		after := commandStats(t, server)
		scripts := after["evalsha"].calls
		latency, err := server.Info("latencystats")
		must(t, err)
		t.Logf("%s: %v, %d scripts of %d µs on average (%s)", what, took.Round(time.Millisecond), scripts,
			after["evalsha"].micros/max(1, scripts), latency["latency_percentiles_usec_evalsha"])
		// Time is up to the machine; how much one script does is not.
		work := int64(0)
		for name, s := range after {
			if !slices.Contains([]string{"evalsha", "eval", "info", "config|resetstat", "hmget"}, name) {
				work += s.calls
			}
		}
		scripts += after["eval"].calls
		if most := int64(1500); work > scripts*most {
			t.Errorf("%s: %d commands in %d scripts, want at most %d in each", what, work, scripts, most)
		}
	}
	task := func(i int) store.NewTask {
		return store.NewTask{ID: fmt.Sprint("task-", i), Payload: make([]byte, 100)}
	}
	stats := func(want store.Stats) {
		t.Helper()
		got, err := s.Stats(ctx, queue)
		must(t, err)
		if got.Scheduled != want.Scheduled || got.Ready != want.Ready || got.Leased != want.Leased || got.Dead != want.Dead {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	// expired waits until all leases have been ended, as whoever claims does.
	expired := func() {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			st, err := s.Stats(ctx, queue)
			must(t, err)
			if st.Leased == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v", st)
			}
		}
	}
	step("schedule", func() { many(t, s, queue, n, task) })
	const lease = 2 * time.Second
	claimed := time.Now()
	step("claim", func() {
		if got := drainAll(t, s, queue, lease); len(got) != n {
			t.Fatalf("%d were due at once, %d came", n, len(got))
		}
	})
	stats(store.Stats{Leased: n})
	time.Sleep(time.Until(claimed.Add(lease + time.Since(claimed))))
	step("leases end", expired)
	stats(store.Stats{Ready: n})
	claimed = time.Now()
	drainAll(t, s, queue, lease)
	time.Sleep(time.Until(claimed.Add(lease + time.Since(claimed))))
	step("leases end for the last time", expired)
	stats(store.Stats{Dead: n})
	step("redrive", func() {
		if got, err := s.Redrive(ctx, store.RedriveRequest{Queue: queue, All: true}); err != nil || got != n {
			t.Fatal(got, err)
		}
	})
	stats(store.Stats{Ready: n})
	receipts := drainAll(t, s, queue, time.Minute)
	step("extend", func() {
		longer := slices.Clone(receipts)
		for i := range longer {
			longer[i].Action = store.Extend
		}
		settleAll(t, s, longer, store.Extended)
	})
	step("ack", func() { settleAll(t, s, receipts, store.Acked) })
	stats(store.Stats{})
	far := func(i int) store.NewTask {
		n := task(i)
		n.Delay = time.Hour
		return n
	}
	many(t, s, queue, n, far)
	step("reschedule", func() {
		requests := make([]store.RescheduleRequest, n)
		for i := range requests {
			requests[i] = store.RescheduleRequest{Queue: queue, ID: far(i).ID, Delay: 2 * time.Hour}
		}
		for part := range slices.Chunk(requests, store.MaxBatch) {
			results, err := s.Reschedule(ctx, part)
			must(t, err)
			if results[0].Outcome != store.Rescheduled {
				t.Fatal(results[0])
			}
		}
	})
	step("purge", func() {
		if got, err := s.Purge(ctx, queue, store.StateScheduled); err != nil || got != n {
			t.Fatal(got, err)
		}
	})
	many(t, s, queue, n, far)
	step("cancel", func() {
		requests := make([]store.CancelRequest, n)
		for i := range requests {
			requests[i] = store.CancelRequest{Queue: queue, ID: far(i).ID}
		}
		for part := range slices.Chunk(requests, store.MaxBatch) {
			results, err := s.Cancel(ctx, part)
			must(t, err)
			if results[0].Outcome != store.Cancelled {
				t.Fatal(results[0])
			}
		}
	})
	stats(store.Stats{})
	checkWhole(t, s)
	slow := slowLog(t, server)
	for _, entry := range slow {
		t.Logf("slow: %s", entry)
	}
	// A script that a busy system did not let run is slow too.
	if os.Getenv("DUETIME_LONG") != "" && len(slow) > 0 {
		t.Errorf("%d commands took more than 20 ms", len(slow))
	}
}

func slowLog(t testing.TB, server *testserver.RedisServer) []string {
	t.Helper()
	entries, _ := do(t, server, "SLOWLOG", "GET", "-1").([]any)
	var all []string
	for _, e := range entries {
		f := e.([]any)
		args := f[3].([]any)
		sha := ""
		if len(args) > 1 {
			sha = fmt.Sprint(args[1])
		}
		name := fmt.Sprint(args[0])
		for _, sc := range newScripts(serverTime).all() {
			if sc.sha == sha {
				name = sc.name
			}
		}
		all = append(all, fmt.Sprintf("%s: %d µs, %d arguments", name, f[2], len(args)))
	}
	return all
}

func (s *scripts) all() []*script {
	return []*script{
		s.schedule, s.claim, s.settle, s.cancel, s.reschedule, s.get, s.list, s.peek,
		s.stats, s.redrive, s.purge, s.settings, s.sweep, s.imports, s.fence, s.finish, s.take, s.land, s.drop,
	}
}

// What a task costs of the server's memory, with a payload of 100 bytes and an id
// of 20.
// An eighth of a million fills the server's hash tables as much as a million does.
func TestMemory(t *testing.T) { memory(t, 125_000) }

func TestMemoryOfAMillion(t *testing.T) {
	needLong(t)
	memory(t, 1_000_000)
}

func memory(t *testing.T, n int) {
	server := testserver.Redis(t, nil)
	s := open(t, Options{Addrs: []string{server.Addr}})
	many(t, s, "orders", 1, func(int) store.NewTask { return store.NewTask{ID: "first", Delay: time.Hour} })
	used := func() int64 {
		info, err := server.Info("memory")
		must(t, err)
		v, err := strconv.ParseInt(info["used_memory"], 10, 64)
		must(t, err)
		return v
	}
	before := used()
	many(t, s, "orders", n, func(i int) store.NewTask {
		return store.NewTask{ID: fmt.Sprintf("order-%014d", i), Payload: make([]byte, 100), Delay: time.Hour + time.Duration(i)*time.Millisecond}
	})
	// Tables that are growing into larger ones are there twice for a while.
	best := used()
	for range 50 {
		time.Sleep(20 * time.Millisecond)
		best = min(best, used())
	}
	each := float64(best-before) / float64(n)
	t.Logf("%d tasks: %.1f bytes each", n, each)
	if each > 330 {
		t.Errorf("%.1f bytes for each task, want at most 330", each)
	}
}

// A worker with nothing to do costs the server a few commands a second.
func TestIdleWorker(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 16} {
		for _, wake := range []Wake{WakePubSub, WakeKeyspace} {
			t.Run(fmt.Sprintf("%s, %d shards", wake, shards), func(t *testing.T) {
				t.Parallel()
				idle(t, Options{Shards: shards, Wake: wake}, 3*time.Second)
			})
		}
	}
}

func idle(t *testing.T, o Options, d time.Duration) {
	server := testserver.Redis(t, nil)
	o.Addrs = []string{server.Addr}
	o.Prefix = nextPrefix()
	producer := open(t, o)
	far := func(i int) store.NewTask { return store.NewTask{ID: fmt.Sprint(i), Delay: time.Hour} }
	many(t, producer, "orders", 100, far)
	must(t, producer.Close())
	l := newLoad(t, []Options{o})
	l.queues = []string{"orders"}
	l.work(0)
	time.Sleep(1500 * time.Millisecond) // what a start costs is another matter
	before := commandStats(t, server)
	began := time.Now()
	time.Sleep(d)
	after := commandStats(t, server)
	seconds := time.Since(began).Seconds()
	total := int64(0)
	var what []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		// What scripts do is part of them; connections are kept alive by the second.
		if n := after[name].calls - before[name].calls; n > 0 && name != "info" {
			what = append(what, fmt.Sprintf("%s %d", name, n))
			if slices.Contains([]string{"evalsha", "eval", "hmget", "hincrby", "publish", "set", "subscribe"}, name) {
				total += n
			}
		}
	}
	l.end()
	l.running.Wait()
	t.Logf("in %.1f s: %s", seconds, strings.Join(what, ", "))
	if perSecond := float64(total) / seconds; perSecond > 5 {
		t.Errorf("%.1f commands a second", perSecond)
	}
}
