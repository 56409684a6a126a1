package duetime_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/storetest/history"
)

// TestMain plays the worker process of TestKilledInTheMiddle.
func TestMain(m *testing.M) {
	if dir := os.Getenv("DUETIME_TEST_WORKER"); dir != "" {
		if err := drainProcess(dir, os.Getenv("DUETIME_TEST_NAME")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const killQueue = "orders"

// openRecorded opens the store in dir and logs what is done with it.
func openRecorded(dir, process string) (store.Store, *history.Log, error) {
	log, err := history.Open(filepath.Join(dir, "history.log"), process)
	if err != nil {
		return nil, nil, err
	}
	st, err := diskstore.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		return nil, nil, err
	}
	return history.Record(st, log), log, nil
}

// drainProcess works until nothing is left, with an ordinary worker.
func drainProcess(dir, name string) error {
	st, log, err := openRecorded(dir, name)
	if err != nil {
		return err
	}
	client := duetime.NewClient(st, &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
	worker := duetime.NewWorker(client, &duetime.WorkerOptions{Name: name, Concurrency: 16})
	worker.Handle(killQueue, func(context.Context, *duetime.Task) error {
		time.Sleep(time.Duration(rand.IntN(int(5 * time.Millisecond))))
		if rand.IntN(20) == 0 {
			return duetime.RetryIn(time.Duration(rand.IntN(int(time.Second))), fmt.Errorf("not this time"))
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	fmt.Println("working")
	for {
		st, err := client.Stats(ctx, killQueue)
		if err != nil {
			return err
		}
		if st.Scheduled+st.Ready+st.Leased == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	if err := <-done; err != nil {
		return err
	}
	if err := client.Close(); err != nil {
		return err
	}
	return log.Close()
}

// A process with a worker is killed ten times in the middle of 20,000 overdue
// tasks. Each runs, none early, and again only where the killed process held it.
func TestKilledInTheMiddle(t *testing.T) {
	const tasks, kills = 20_000, 10
	dir := t.TempDir()
	st, log, err := openRecorded(dir, "producer")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	client := duetime.NewClient(st, &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
	// Short leases, so that those who come after a kill need not wait for long.
	if _, err := client.UpdateSettings(ctx, killQueue, func(s *duetime.Settings) {
		s.Lease, s.MaxLost = time.Second, 100
	}); err != nil {
		t.Fatal(err)
	}
	var batch []duetime.NewTask
	hourAgo := time.Now().Add(-time.Hour)
	for i := range tasks {
		batch = append(batch, duetime.NewTask{ID: fmt.Sprint(i), Payload: fmt.Appendf(nil, "order %d", i), Due: hourAgo.Add(time.Duration(i) * time.Millisecond)})
	}
	if _, err := client.ScheduleMany(ctx, killQueue, batch); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range kills + 1 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DUETIME_TEST_WORKER="+dir, fmt.Sprintf("DUETIME_TEST_NAME=worker-%d", n))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal("the worker did not start:", err)
		}
		if n < kills {
			// A moment chosen at random is the point: not a wait for something.
			time.Sleep(time.Duration(50+rand.IntN(400)) * time.Millisecond)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			log.Crash()
		} else if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	left, err := diskstore.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if err := log.Final(ctx, left); err != nil {
		t.Fatal(err)
	}
	lines, err := history.ReadFiles(filepath.Join(dir, "history.log"))
	if err != nil {
		t.Fatal(err)
	}
	report := history.Check(lines, history.Options{})
	t.Logf("%v", report)
	if !report.OK() {
		t.Fail()
	}
	// An ack whose answer the kill cut off may be that of a task that is gone.
	if !report.HasFinal || report.Tasks != tasks || report.Done+report.Unknown < tasks {
		t.Errorf("want %d tasks, all of them done", tasks)
	}
	if len(report.Repeats) == 0 {
		t.Error("no kill met a task that was out: the test shows nothing")
	}
}
