package mysqlstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

const consumerEnv = "MYSQLSTORE_TEST_URL"

// consume is a process that consumes the queue orders until nothing is left in it.
// In the mode "plain" it acks all; "unsteady" retries, extends and releases some, and
// cancels. It outlives a server that is away.
func consume(url, name, path, mode string) error {
	ctx := context.Background()
	var s *Store
	var err error
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if s, err = Open(ctx, url, &Options{Logger: quiet()}); err == nil {
			break
		} else if time.Now().After(end) {
			return err
		}
	}
	defer s.Close()
	var st store.Store = s
	if path != "" {
		log, err := history.Open(path, name)
		if err != nil {
			return err
		}
		defer log.Close()
		st = history.Record(s, log)
	}
	fmt.Println("ready")
	if mode == "plain" { // the test says when to begin
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	failing := time.Time{}
	fail := func(err error) error {
		if failing.IsZero() {
			failing = time.Now()
		}
		if time.Since(failing) > 60*time.Second {
			return err
		}
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	for done := 0; ; {
		r, err := st.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 100, Lease: 2 * time.Second, Worker: name}})
		if err != nil {
			if err := fail(err); err != nil {
				return err
			}
			continue
		}
		failing = time.Time{}
		if len(r[0].Tasks) == 0 {
			stats, err := s.Stats(ctx, "orders")
			if err == nil && stats.Scheduled+stats.Ready+stats.Leased == 0 || mode == "plain" {
				fmt.Println("done", done)
				return nil
			}
			time.Sleep(5 * time.Millisecond)
			continue
		}
		var list []store.Settlement
		for _, l := range r[0].Tasks {
			m := store.Settlement{Receipt: l.Receipt, Action: store.Ack}
			if mode == "unsteady" {
				switch rand.IntN(20) {
				case 0:
					m.Action, m.Delay, m.Error = store.Retry, time.Duration(rand.IntN(300))*time.Millisecond, "not this time"
				case 1:
					m.Action = store.Release
				case 2:
					m.Action, m.Delay = store.Snooze, time.Duration(rand.IntN(300))*time.Millisecond
				}
			}
			list = append(list, m)
		}
		settled, err := st.Settle(ctx, list)
		if err != nil {
			if err := fail(err); err != nil {
				return err
			}
			continue
		}
		for _, r := range settled {
			if r.Outcome == store.Acked {
				done++
			}
		}
		if mode == "unsteady" {
			_, _ = st.Cancel(ctx, []store.CancelRequest{{Queue: "orders", ID: fmt.Sprintf("order-%09d", rand.IntN(5000)), Force: rand.IntN(2) == 0}})
		}
	}
}

// consumer is a process that runs consume.
type consumer struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	count int
}

func startConsumer(t testing.TB, url, name, log, mode string) *consumer {
	t.Helper()
	c := &consumer{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), consumerEnv+"="+url, consumerEnv+"_NAME="+name, consumerEnv+"_LOG="+log, consumerEnv+"_MODE="+mode)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%s did not start: %q, %v", name, line, err)
	}
	return c
}

// wait waits for its end, and notes how many it did.
func (c *consumer) wait() error {
	line, _ := c.out.ReadString('\n')
	if text, ok := strings.CutPrefix(strings.TrimSpace(line), "done "); ok {
		c.count, _ = strconv.Atoi(text)
	}
	return c.cmd.Wait()
}

// checkHistory reads what all processes did with a store and wants nothing wrong.
func checkHistory(t testing.TB, path string) *history.Report {
	t.Helper()
	lines, err := history.ReadFiles(path)
	if err != nil {
		t.Fatal(err)
	}
	r := history.Check(lines, history.Options{})
	if !r.OK() {
		t.Errorf("%v", r)
	}
	t.Logf("%d tasks, %d runs, %d done, %d cancelled, %d calls of unknown outcome, %d repeats", r.Tasks, r.Runs, r.Done, r.Cancelled, r.Unknown, len(r.Repeats))
	return r
}

// Consumers are killed in the middle of what they do, and a producer goes on
// meanwhile: nothing is lost, early, run after a cancel, or repeated but for what the
// dead ones held.
func TestConsumersAreKilled(t *testing.T) {
	t.Parallel()
	kills(t, database(t), func(url, log string) {
		for n := range 6 {
			c := startConsumer(t, url, fmt.Sprint("doomed ", n), log, "unsteady")
			time.Sleep(time.Duration(20+rand.IntN(250)) * time.Millisecond) // a moment chosen at random is the point
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
}

// The server is killed in the middle, twice, and started again.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	testserver.NeedMariaDB(t)
	m := testserver.MariaDB(t, &testserver.MariaDBOptions{Config: careless})
	kills(t, "mysql://root@"+m.Addr+"/"+m.Database, func(string, string) {
		for range 2 {
			time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond)
			m.Kill()
			if err := m.Restart(); err != nil {
				t.Error(err)
			}
		}
	})
}

func kills(t *testing.T, url string, happen func(url, log string)) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "history.log")
	log, err := history.Open(path, "producer")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, url, nil)
	st := history.Record(s, log)
	const n = 4000
	if _, err := s.PutSettings(ctx, "orders", func() store.Settings {
		x := store.DefaultSettings()
		x.MaxLost = 1000
		return x
	}()); err != nil {
		t.Fatal(err)
	}
	schedule := func(from, to int, due time.Time) {
		tasks := make([]store.NewTask, 0, to-from)
		for i := from; i < to; i++ {
			tasks = append(tasks, store.NewTask{Queue: "orders", ID: fmt.Sprintf("order-%09d", i), Payload: benchPayload, Due: due.Add(time.Duration(i) * time.Millisecond)})
		}
		for end := time.Now().Add(60 * time.Second); ; {
			if _, err := st.Schedule(ctx, tasks); err == nil {
				return
			} else if time.Now().After(end) {
				t.Errorf("schedule: %v", err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	schedule(0, n/2, time.Now().Add(-time.Hour))
	// Those who live to the end.
	var steady []*consumer
	for i := range 3 {
		steady = append(steady, startConsumer(t, url, fmt.Sprint("steady ", i), path, "unsteady"))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for from := n / 2; from < n; from += 50 {
			schedule(from, from+50, time.Now())
			time.Sleep(5 * time.Millisecond)
		}
	})
	happen(url, path)
	wg.Wait()
	// Those who were there may have found nothing and gone home.
	steady = append(steady, startConsumer(t, url, "last", path, "unsteady"))
	for _, c := range steady {
		if err := c.wait(); err != nil {
			t.Errorf("a consumer: %v", err)
		}
	}
	if err := log.Final(ctx, s); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if r := checkHistory(t, path); r.Tasks < n-100 {
		t.Errorf("%d tasks of %d", r.Tasks, n)
	}
	recount(t, s)
}

// recount compares the counters with the rows.
func recount(t testing.TB, s *Store) {
	t.Helper()
	var wrong int
	if err := s.db.QueryRow(withTables(`SELECT COUNT(*) FROM {queue} q
		LEFT JOIN (SELECT queue_id, SUM(waiting) w, SUM(leased) l, SUM(dead) d FROM {tally} GROUP BY queue_id) y ON y.queue_id = q.id
		LEFT JOIN (SELECT queue_id, SUM(state = 0) w, SUM(state = 1) l, SUM(state = 2) d FROM {task} GROUP BY queue_id) k ON k.queue_id = q.id
		WHERE y.w <> COALESCE(k.w, 0) OR y.l <> COALESCE(k.l, 0) OR y.d <> COALESCE(k.d, 0)`, s.database)).Scan(&wrong); err != nil {
		t.Fatal(err)
	}
	if wrong != 0 {
		t.Errorf("the counters of %d queues are not what a recount says", wrong)
	}
}

// Ten processes, thousands of tasks that are due at one moment: each runs once.
func TestTenProcesses(t *testing.T) {
	n := 5_000
	if os.Getenv("DUETIME_LONG") != "" {
		n = 50_000
	}
	url := database(t)
	s := open(t, url, nil)
	path := filepath.Join(t.TempDir(), "history.log")
	log, err := history.Open(path, "producer")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	fill(t, history.Record(s, log), n, time.Now().Add(-time.Hour))
	took, each := race(t, url, 10, path)
	r := checkHistory(t, path)
	if r.Done != n || r.Runs != n {
		t.Errorf("%d runs, %d done, want %d", r.Runs, r.Done, n)
	}
	t.Logf("%d tasks, 10 processes: %.0f tasks/s, %v each", n, float64(n)/took.Seconds(), each)
	recount(t, s)
}

// race lets processes consume what is there.
func race(t testing.TB, url string, processes int, log string) (took time.Duration, each []int) {
	var all []*consumer
	for i := range processes {
		all = append(all, startConsumer(t, url, fmt.Sprint("consumer ", i), log, "plain"))
	}
	start := time.Now()
	for _, c := range all {
		fmt.Fprintln(c.in, "go")
	}
	for _, c := range all {
		if err := c.wait(); err != nil {
			t.Errorf("a consumer: %v", err)
		}
		each = append(each, c.count)
	}
	return time.Since(start), each
}

// More consumers do not make it slower. The machine's other work does, so the best of
// several rounds counts, one, two and four taking turns.
func TestMoreConsumersAreNotSlower(t *testing.T) {
	if os.Getenv("DUETIME_LONG") == "" {
		t.Skip("long: run with make test-long")
	}
	url := database(t)
	s := open(t, url, nil)
	const n = 20_000
	rates := make(map[int][]float64)
	for range 5 {
		for _, processes := range []int{1, 2, 4, 10} {
			fill(t, s, n, time.Now().Add(-time.Hour))
			took, _ := race(t, url, processes, "")
			rates[processes] = append(rates[processes], n/took.Seconds())
		}
	}
	best := func(p int) float64 { return slices.Max(rates[p]) }
	t.Logf("best of 5, tasks/s: 1 process %.0f, 2 %.0f, 4 %.0f, 10 %.0f; all: %v", best(1), best(2), best(4), best(10), rates)
	if best(4) < 0.9*best(1) {
		t.Errorf("four processes make %.0f tasks/s, one %.0f", best(4), best(1))
	}
}
