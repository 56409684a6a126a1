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

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// ownBroker is for tests that do something to it. What comes due while a broker
// is down is held up when it starts (see docs/operations.md), for three minutes
// unless it is told otherwise, as here.
func ownBroker(t *testing.T, config ...string) *testserver.RabbitMQServer {
	t.Helper()
	t.Parallel() // such tests mostly wait
	return testserver.RabbitMQ(t, &testserver.RabbitMQOptions{
		Config: config, Erlang: "-rabbit dead_letter_worker_publisher_confirm_timeout 2000",
	})
}

// ownOptions are those of the only store of a broker of its own.
func ownOptions(kind QueueType) *Options {
	return &Options{QueueType: kind, rungs: 11}
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
func work(ctx context.Context, st store.Store, hands int, done *atomic.Int64) {
	claimer, _ := store.As[store.WaitingClaimer](st)
	for ctx.Err() == nil {
		r, err := claimer.ClaimWait(ctx, store.ClaimRequest{Queue: "orders", Max: hands, Lease: 5 * time.Second, Worker: "w"}, time.Second)
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

func scheduleMany(t *testing.T, st store.Store, n int, from, to time.Duration) {
	t.Helper()
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{Queue: "orders", ID: fmt.Sprint(i), Payload: fmt.Append(nil, "order ", i), Delay: from + rand.N(to-from)}
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

// The broker is killed in the middle of 2,000 waits, twice: with messages on the
// ladder, in hand, between rungs and on their way back, and some whose wait runs
// out while it is down.
func TestBrokerKilled(t *testing.T) {
	const tasks = 2000
	server := ownBroker(t)
	s := mustOpen(t, server.URL(), ownOptions(Quorum))
	log := history.NewLog("worker", time.Now)
	st := history.Record(s, log)
	scheduleMany(t, st, tasks, 500*time.Millisecond, 6*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done atomic.Int64
	for range 3 {
		go work(ctx, st, 20, &done)
	}
	for range 2 {
		time.Sleep(1500 * time.Millisecond) // a moment in the middle, not a wait for something
		server.Kill()
		log.Crash()
		time.Sleep(500 * time.Millisecond)
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	drained(t, s, 8*time.Second, &done)
	log.FinalEmpty()
	cancel()
	checkHistory(t, log.Lines(), tasks, history.DoublesAll)
}

// A wait that runs out while the broker is down: all come after it starts, none
// early (B12).
func TestBrokerDownWhenTheWaitRunsOut(t *testing.T) {
	const tasks = 100
	server := ownBroker(t)
	s := mustOpen(t, server.URL(), ownOptions(Quorum))
	log := history.NewLog("worker", time.Now)
	st := history.Record(s, log)
	scheduleMany(t, st, tasks, 2*time.Second, 2*time.Second+1)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	log.Crash()
	time.Sleep(3 * time.Second) // until they are due
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done atomic.Int64
	go work(ctx, st, 20, &done)
	for end := time.Now().Add(40 * time.Second); done.Load() < tasks && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	drained(t, s, time.Second, &done)
	log.FinalEmpty()
	cancel()
	checkHistory(t, log.Lines(), tasks, history.DoublesAll)
}

// workerProcess is what a process does that TestConsumersKilled kills.
func workerProcess() error {
	dir, url := os.Getenv("DUETIME_TEST_WORKER"), os.Getenv("DUETIME_TEST_URL")
	log, err := history.Open(filepath.Join(dir, "history.log"), fmt.Sprint("worker-", os.Getpid()))
	if err != nil {
		return err
	}
	s, err := Open(context.Background(), url, ownOptions(Quorum))
	if err != nil {
		return err
	}
	fmt.Println("working")
	var done atomic.Int64
	work(context.Background(), history.Record(s, log), 20, &done)
	return errors.New("the work ended")
}

// Processes are killed one after the other in the middle of 5,000 tasks. Each task
// runs, none early, and again only where a killed process had it, counted as lost.
func TestConsumersKilled(t *testing.T) {
	const tasks, kills = 5000, 6
	server := ownBroker(t)
	dir := t.TempDir()
	log, err := history.Open(filepath.Join(dir, "history.log"), "producer")
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, server.URL(), ownOptions(Quorum))
	scheduleMany(t, history.Record(s, log), tasks, time.Millisecond, 5*time.Second)
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DUETIME_TEST_WORKER="+dir, "DUETIME_TEST_URL="+server.URL())
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
		_ = workers[0].Process.Kill()
		_ = workers[0].Wait()
		log.Crash()
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
