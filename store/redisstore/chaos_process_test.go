package redisstore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// playVariable has the part that this program plays where a test has started it as
// a process of its own, in JSON.
const playVariable = "DUETIME_TEST_PLAY"

type part struct {
	Name, Log, Addr, Prefix string
	Queue                   string
	Concurrency             int
	Fails                   bool // with runSome; else the handler does nothing
}

// play works as an ordinary worker until its standard input ends.
func play(text string) int {
	err := func() error {
		var p part
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err
		}
		log, err := history.Open(p.Log, p.Name)
		if err != nil {
			return err
		}
		s, err := Open(context.Background(), &Options{Addrs: []string{p.Addr}, Prefix: p.Prefix, Sweep: -1})
		if err != nil {
			return err
		}
		client := duetime.NewClient(history.Record(s, log), &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
		worker := duetime.NewWorker(client, &duetime.WorkerOptions{Name: p.Name, Concurrency: p.Concurrency})
		worker.Handle(p.Queue, func(ctx context.Context, t *duetime.Task) error {
			if p.Fails {
				return runSome(ctx, t)
			}
			return nil
		})
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		fmt.Println("working")
		if err := worker.Run(ctx); err != nil {
			return err
		}
		return errors.Join(client.Close(), log.Close())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// worker is a process that plays a part.
type workerProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startWorker(t *testing.T, p part) *workerProcess {
	t.Helper()
	text, err := json.Marshal(p)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), playVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal("a worker did not start: ", err)
	}
	return &workerProcess{cmd, stdin}
}

// stop lets a worker end as it should.
func (w *workerProcess) stop(t *testing.T) {
	t.Helper()
	_ = w.stdin.Close()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("a worker ended with %v", err)
	}
}

// Consumers are killed again and again. What they held comes back when its lease
// is over, and nothing else runs twice.
func TestConsumersAreKilled(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	l := newLoad(t, alike(3, Options{Addrs: []string{server.Addr}}))
	l.start("orders")
	path := filepath.Join(t.TempDir(), "history.log")
	n := 0
	another := func() *workerProcess {
		n++
		return startWorker(t, part{
			Name: fmt.Sprint("victim-", n), Log: path, Addr: server.Addr, Prefix: l.plain[0].opts.Prefix,
			Queue: "orders", Concurrency: 8, Fails: true,
		})
	}
	for range 6 {
		a, b := another(), another()
		// A moment chosen at random is the point: not a wait for something.
		time.Sleep(time.Duration(50+rand.IntN(300)) * time.Millisecond)
		for _, w := range []*workerProcess{a, b} {
			must(t, w.cmd.Process.Kill())
			_ = w.cmd.Wait()
		}
	}
	last := another()
	l.enough()
	l.making.Wait()
	l.drain()
	last.stop(t)
	l.end()
	l.running.Wait()
	report := l.judge(history.Options{}, time.Time{}, []string{path})
	if len(report.Repeats) == 0 {
		t.Error("no kill met a task that was out: the test shows nothing")
	}
}

// B04: ten processes that consume, and thousands of tasks that are due at the same
// instant: each runs once.
func TestTenConsumersOneInstant(t *testing.T) {
	tenConsumers(t, 10_000)
}

func TestTenConsumersOneInstantLong(t *testing.T) {
	needLong(t)
	tenConsumers(t, 100_000)
}

func tenConsumers(t *testing.T, tasks int) {
	server := testserver.Redis(t, nil)
	log := history.NewLog("producer", nil)
	plain := open(t, Options{Addrs: []string{server.Addr}})
	st := history.Record(plain, log)
	ctx := context.Background()
	due := time.Now().Add(time.Duration(tasks/20)*time.Millisecond/10 + 6*time.Second).Truncate(time.Millisecond)
	for from := 0; from < tasks; from += 5000 {
		batch := make([]store.NewTask, 5000)
		for i := range batch {
			batch[i] = store.NewTask{Queue: "orders", ID: fmt.Sprint("task-", from+i), Payload: []byte("x"), Due: due}
		}
		results, err := st.Schedule(ctx, batch)
		must(t, err)
		for i := range results {
			if results[i].Outcome != store.Created {
				t.Fatalf("%+v", results[i])
			}
		}
	}
	path := filepath.Join(t.TempDir(), "history.log")
	var workers []*workerProcess
	for n := range 10 {
		workers = append(workers, startWorker(t, part{
			Name: fmt.Sprint("worker-", n), Log: path, Addr: server.Addr, Prefix: plain.opts.Prefix, Queue: "orders", Concurrency: 32,
		}))
	}
	if left := time.Until(due); left < 0 {
		t.Errorf("the tasks were due %v before all workers had started: this machine is too busy", -left)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		s, err := plain.Stats(ctx, "orders")
		must(t, err)
		if s == (store.Stats{}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %+v", s)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d tasks were done %v after they were due", tasks, time.Since(due).Round(time.Millisecond))
	for _, w := range workers {
		w.stop(t)
	}
	must(t, log.Final(ctx, plain))
	lines, err := history.ReadFiles(path)
	must(t, err)
	report := history.Check(append(log.Lines(), lines...), history.Options{})
	t.Logf("%v", report)
	for _, p := range report.Problems {
		t.Errorf("%v", p)
	}
	if report.Tasks != tasks || report.Runs != tasks || report.Done != tasks || len(report.Repeats) > 0 || !report.HasFinal {
		t.Errorf("want %d tasks, each of which runs once", tasks)
	}
	who := make(map[string]int)
	for _, line := range lines {
		if line.Op == "claim" && line.End {
			for _, i := range line.Items {
				who[i.Worker]++
			}
		}
	}
	if len(who) < 10 {
		t.Logf("only %d workers had a share: %v", len(who), who)
	}
}
