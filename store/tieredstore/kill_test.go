package tieredstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// consumerEnv is the database of a process that consumes.
const consumerEnv = "TIEREDSTORE_TEST_URL"

// consume claims and settles until the file path + ".end" is there and the queue is
// empty. It outlives servers that are away.
func consume(url, redis, name, path string) error {
	log, err := history.Open(path, name)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &pair{url: url, redis: redis, prefix: "own"}
	var s *Store
	for end := time.Now().Add(30 * time.Second); s == nil; time.Sleep(50 * time.Millisecond) {
		if s, err = p.tryOpen(); err != nil && time.Now().After(end) {
			return err
		}
	}
	defer s.Close()
	st := history.Record(s, log)
	ctx := context.Background()
	for {
		r, err := st.Claim(ctx, []store.ClaimRequest{{Queue: orders, Max: 50, Lease: 2 * time.Second, Worker: name}})
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if len(r[0].Tasks) == 0 {
			stats, err := s.Stats(ctx, orders)
			if _, end := os.Stat(path + ".end"); err == nil && end == nil && stats.Scheduled+stats.Ready+stats.Leased == 0 {
				return nil
			}
			time.Sleep(5 * time.Millisecond)
			continue
		}
		var list []store.Settlement
		for _, l := range r[0].Tasks {
			m := store.Settlement{Receipt: l.Receipt, Action: store.Ack}
			switch rand.IntN(20) {
			case 0:
				m.Action, m.Delay, m.Error = store.Retry, time.Duration(rand.IntN(300))*time.Millisecond, "not this time"
			case 1:
				m.Action = store.Release
			case 2:
				m.Action, m.Delay = store.Snooze, time.Duration(rand.IntN(300))*time.Millisecond
			}
			list = append(list, m)
		}
		_, _ = st.Settle(ctx, list) // what is not settled comes again
		_, _ = st.Cancel(ctx, []store.CancelRequest{{Queue: orders, ID: fmt.Sprint(rand.IntN(4000)), Force: rand.IntN(2) == 0}})
	}
}

func startConsumer(t *testing.T, p *pair, name, path string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), consumerEnv+"="+p.url, consumerEnv+"_REDIS="+p.redis, consumerEnv+"_NAME="+name, consumerEnv+"_LOG="+path)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

// Processes that consume, Redis and MySQL are killed in the middle of it, and a
// producer goes on: nothing is lost, early, run after a cancel, or leased twice at a
// time.
func TestAllAreKilled(t *testing.T) {
	rounds := 2
	if os.Getenv("DUETIME_LONG") != "" {
		rounds = 15
	}
	p, m, r := ownServers(t)
	path := filepath.Join(t.TempDir(), "history.log")
	log, err := history.Open(path, "producer")
	if err != nil {
		t.Fatal(err)
	}
	s := p.open(t)
	ctx := context.Background()
	settings := store.DefaultSettings()
	settings.MaxLost = 1000
	if _, err := s.PutSettings(ctx, orders, settings); err != nil {
		t.Fatal(err)
	}
	st := history.Record(s, log)
	stop := make(chan struct{})
	var producer sync.WaitGroup
	made := 0
	producer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			tasks := make([]store.NewTask, 20)
			for i := range tasks {
				tasks[i] = store.NewTask{Queue: orders, ID: fmt.Sprint(made + i), Delay: time.Duration(rand.IntN(1500)) * time.Millisecond}
			}
			if _, err := st.Schedule(ctx, tasks); err == nil {
				made += len(tasks)
			}
		}
	})
	steady := []*exec.Cmd{startConsumer(t, p, "steady 0", path), startConsumer(t, p, "steady 1", path)}
	pause := func() { time.Sleep(time.Duration(300+rand.IntN(700)) * time.Millisecond) }
	for i := range rounds {
		c := startConsumer(t, p, fmt.Sprint("short ", i), path)
		pause()
		_ = c.Process.Kill()
		r.Kill()
		pause()
		if err := r.Restart(); err != nil { // and empty
			t.Fatal(err)
		}
		pause()
		m.Kill()
		pause()
		if err := m.Restart(); err != nil {
			t.Fatal(err)
		}
		pause()
	}
	close(stop)
	producer.Wait()
	if err := os.WriteFile(path+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range steady {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	if err := log.Final(ctx, s); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := history.ReadFiles(path)
	if err != nil {
		t.Fatal(err)
	}
	report := history.Check(lines, history.Options{})
	if !report.OK() {
		t.Errorf("%v", report)
	}
	if made < 500 || report.Done < made/2 {
		t.Errorf("%d were made and %d done", made, report.Done)
	}
	t.Logf("%d tasks, %d runs, %d done, %d cancelled, %d calls of unknown outcome, %d repeats",
		report.Tasks, report.Runs, report.Done, report.Cancelled, report.Unknown, len(report.Repeats))
}
