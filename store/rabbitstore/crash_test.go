package rabbitstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// ownOptions are those of a store that has a prefix to itself, and with it a
// ladder.
func ownOptions(kind QueueType) *Options {
	return &Options{QueueType: kind, powers: 11}
}

func mustOpen(t *testing.T, url string, opts *Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// work claims and acks until ctx ends, as a worker does: trouble is waited out. It
// lets one task in ten fail, to come again.
func work(ctx context.Context, st store.Store, queue string, hands int, done *atomic.Int64) {
	claimer, _ := store.As[store.WaitingClaimer](st)
	for ctx.Err() == nil {
		r, err := claimer.ClaimWait(ctx, store.ClaimRequest{Queue: queue, Max: hands, Lease: 5 * time.Second, Worker: "w"}, time.Second)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		var settle []store.Settlement
		for _, l := range r.Tasks {
			s := store.Settlement{Receipt: l.Receipt, Action: store.Ack}
			if l.Failures == 0 && rand.IntN(10) == 0 {
				s.Action, s.Delay = store.Retry, rand.N(300*time.Millisecond)
			}
			settle = append(settle, s)
		}
		if len(settle) == 0 {
			continue
		}
		results, err := st.Settle(ctx, settle)
		if err != nil {
			continue
		}
		for i := range results {
			if results[i].Outcome == store.Acked {
				done.Add(1)
			}
		}
	}
}

// drained waits until the queue has been empty for a while.
func drained(t *testing.T, s *Store, quiet time.Duration, done *atomic.Int64) {
	t.Helper()
	last, since := done.Load(), time.Now()
	for end := time.Now().Add(100 * time.Second); time.Since(since) < quiet; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the queue is never empty")
		}
		stats, err := s.Stats(context.Background(), "orders")
		if n := done.Load(); n != last || err != nil || stats.Ready+stats.Leased > 0 {
			last, since = n, time.Now()
		}
	}
	if stats, err := s.Stats(context.Background(), "orders"); err != nil || stats.Dead > 0 {
		t.Errorf("%d are dead, %v", stats.Dead, err)
	}
}

func checkHistory(t *testing.T, lines []history.Line, tasks int, doubles history.Doubles) {
	t.Helper()
	report := history.Check(lines, history.Options{Forgets: true, Doubles: doubles})
	t.Logf("%v", report)
	if !report.OK() {
		t.Fail()
	}
	if !report.HasFinal || report.Tasks != tasks || report.Done+report.Unknown < tasks {
		t.Errorf("%d tasks, %d done, %d unknown; want %d, all done", report.Tasks, report.Done, report.Unknown, tasks)
	}
}

func scheduleMany(t *testing.T, st store.Store, queue string, n int, from, to time.Duration) {
	t.Helper()
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{Queue: queue, ID: fmt.Sprint(i), Payload: fmt.Append(nil, "order ", i), Delay: from + rand.N(to-from)}
	}
	results, err := st.Schedule(context.Background(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		if results[i].Outcome != store.Created {
			t.Fatalf("schedule: %v, %v", results[i].Outcome, results[i].Err)
		}
	}
}

// workerProcess is what a process does that TestConsumersKilled kills.
func workerProcess() error {
	dir, url := os.Getenv("DUETIME_TEST_WORKER"), os.Getenv("DUETIME_TEST_URL")
	log, err := history.Open(filepath.Join(dir, "history.log"), fmt.Sprint("worker-", os.Getpid()))
	if err != nil {
		return err
	}
	opts := options(Quorum)
	opts.space = os.Getenv("DUETIME_TEST_SPACE")
	s, err := Open(context.Background(), url, opts)
	if err != nil {
		return err
	}
	fmt.Println("working")
	var done atomic.Int64
	work(context.Background(), history.Record(s, log), "orders", 20, &done)
	return errors.New("the work ended")
}

// Processes are killed one after the other in the middle of 5,000 tasks. Each task
// runs, none early, and again only where a killed process had it, counted as lost.
func TestConsumersKilled(t *testing.T) {
	const tasks, kills = 5000, 6
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	log, err := history.Open(filepath.Join(dir, "history.log"), "producer")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, options(Quorum))
	scheduleMany(t, history.Record(s, log), "orders", tasks, time.Millisecond, 5*time.Second)
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DUETIME_TEST_WORKER="+dir, "DUETIME_TEST_URL="+brokerURL(t), "DUETIME_TEST_SPACE="+s.opts.space)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal("the worker did not start:", err)
		}
		return cmd
	}
	workers := []*exec.Cmd{start(), start()}
	for range kills {
		time.Sleep(time.Duration(200+rand.IntN(400)) * time.Millisecond)
		crashed := log.Crashing() // the broker tells the other worker at once
		_ = workers[0].Process.Kill()
		_ = workers[0].Wait()
		crashed()
		workers = append(workers[1:], start())
	}
	var none atomic.Int64
	drained(t, s, 6*time.Second, &none) // a lease and a second
	log.FinalEmpty()
	lines, err := history.ReadFiles(filepath.Join(dir, "history.log"))
	if err != nil {
		t.Fatal(err)
	}
	checkHistory(t, lines, tasks, history.DoublesGivenBack)
}
