package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store/remotestore"
)

// long says whether the tests may take their time: make test-long.
var long = os.Getenv("DUETIME_LONG") != ""

// fleet is a server and its workers, each a process of its own.
type fleet struct {
	t    *testing.T
	addr string
	data string

	server *exec.Cmd
	logs   []string // of the workers: a line for each run
}

func newFleet(t *testing.T) *fleet {
	addr, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, addr: addr, data: filepath.Join(t.TempDir(), "data")}
	f.serve()
	return f
}

func (f *fleet) url() string { return "http://" + f.addr }

// start begins a process with its output in a file, and sees to its end.
func (f *fleet) start(name string, args ...string) (_ *exec.Cmd, log string) {
	f.t.Helper()
	log = filepath.Join(f.t.TempDir(), "out")
	out, err := os.Create(log)
	if err != nil {
		f.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "DUETIME_STORE="+f.url(), "GORACE=atexit_sleep_ms=0")
	cmd.Stdout = out
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if f.t.Failed() && errs.Len() > 0 {
			f.t.Logf("%s %v said:\n%s", name, args, errs.Bytes()[max(0, errs.Len()-2000):])
		}
	})
	return cmd, log
}

func (f *fleet) serve() {
	f.t.Helper()
	f.server, _ = f.start("duetime", "serve", "--store", "embedded:"+f.data, "--listen", f.addr)
	f.poll("the server to be ready", func() bool {
		r, err := http.Get(f.url() + "/readyz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// killServer ends it as the kernel would, and starts it again.
func (f *fleet) killServer() {
	f.t.Helper()
	kill(f.t, f.server)
	f.serve()
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
}

// work starts a worker of the queue q.
func (f *fleet) work(args ...string) *exec.Cmd {
	f.t.Helper()
	cmd, log := f.start("duetime", append([]string{"work", "q"}, args...)...)
	f.logs = append(f.logs, log)
	return cmd
}

// curlLoop is a worker as one might write it in a shell.
const curlLoop = `
post() { curl -sS -X POST -H 'Content-Type: application/json' "$DUETIME_STORE/v1/$1" -d "$2"; }
while :; do
	got=$(post queues/q/claim '{"max": 20, "wait": "1s", "lease": "30s"}') || continue
	receipts=$(echo "$got" | grep -o '"receipt":"[^"]*"' | cut -d: -f2 | paste -sd, -)
	[ -n "$receipts" ] || continue
	echo "$got"
	post ack "{\"receipts\": [$receipts]}" >/dev/null
done`

func (f *fleet) workWithCurl() {
	f.t.Helper()
	_, log := f.start("sh", "-c", curlLoop)
	f.logs = append(f.logs, log)
}

// aRun is one hand-out of a task, as a worker's log has it.
type aRun struct {
	ID        string    `json:"id"`
	Attempt   int       `json:"attempt"`
	DueAt     time.Time `json:"due_at"`
	ClaimedAt time.Time `json:"claimed_at"`
}

// runs reads what the workers did, in the order in which tasks were handed out.
func (f *fleet) runs() []aRun {
	f.t.Helper()
	var runs []aRun
	for _, log := range f.logs {
		text, err := os.ReadFile(log)
		if err != nil {
			f.t.Fatal(err)
		}
		// One that was killed may have left half a line.
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		for line := range bytes.Lines(text) {
			var answer struct {
				aRun
				Tasks []aRun `json:"tasks"` // in answers to claims
			}
			if err := json.Unmarshal(line, &answer); err != nil {
				f.t.Fatalf("%v in %s", err, line)
			}
			if answer.ID != "" {
				runs = append(runs, answer.aRun)
			}
			runs = append(runs, answer.Tasks...)
		}
	}
	slices.SortStableFunc(runs, func(a, b aRun) int { return a.ClaimedAt.Compare(b.ClaimedAt) })
	return runs
}

func (f *fleet) poll(what string, done func() bool) {
	f.t.Helper()
	patience := time.Minute
	if long {
		patience = 10 * time.Minute
	}
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func (f *fleet) client() *duetime.Client {
	f.t.Helper()
	st, err := remotestore.Open(context.Background(), f.url(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	client := duetime.NewClient(st, nil)
	f.t.Cleanup(func() { client.Close() })
	return client
}

// schedule puts n tasks into the queue q.
func (f *fleet) schedule(n int, due func(i int) time.Time) {
	f.t.Helper()
	client := f.client()
	tasks := make([]duetime.NewTask, n)
	for i := range tasks {
		tasks[i] = duetime.NewTask{ID: fmt.Sprintf("task-%05d", i), Due: due(i)}
	}
	for batch := range slices.Chunk(tasks, 5000) {
		answers, err := client.ScheduleMany(context.Background(), "q", batch)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, a := range answers {
			if a.Outcome != duetime.OutcomeCreated {
				f.t.Fatalf("%s: %s, %v", a.ID, a.Outcome, a.Err)
			}
		}
	}
}

// finish waits until n tasks have run and nothing is left, and checks what the
// logs tell. It returns the runs that were repetitions.
func (f *fleet) finish(n int) []aRun {
	f.t.Helper()
	client := f.client()
	f.poll("the queue to be empty", func() bool {
		stats, err := client.Stats(context.Background(), "q")
		if err != nil {
			f.t.Fatal(err)
		}
		if stats.Dead > 0 {
			f.t.Fatalf("%d tasks are dead", stats.Dead)
		}
		return stats == duetime.Stats{}
	})
	byID := make(map[string][]aRun)
	var repeated []aRun
	for _, r := range f.runs() {
		if r.ClaimedAt.Before(r.DueAt) {
			f.t.Errorf("early: %+v", r)
		}
		before := byID[r.ID]
		if len(before) > 0 {
			repeated = append(repeated, r)
			if last := before[len(before)-1]; r.Attempt <= last.Attempt {
				f.t.Errorf("%+v after %+v: a repetition whose attempt does not tell", r, last)
			}
		}
		byID[r.ID] = append(before, r)
	}
	lost := 0
	for i := range n {
		if id := fmt.Sprintf("task-%05d", i); len(byID[id]) == 0 {
			if lost++; lost <= 10 {
				f.t.Errorf("lost: %s", id)
			}
		}
	}
	if lost > 0 || len(byID) != n {
		f.t.Errorf("%d tasks lost, %d of %d seen", lost, len(byID), n)
	}
	f.t.Logf("%d tasks, %d runs, %d repeated", n, len(f.runs()), len(repeated))
	return repeated
}

func overdue(i int) time.Time {
	return time.Now().Add(-time.Hour).Add(time.Duration(i) * time.Millisecond)
}

// TestTenConsumers: all tasks are due at the same instant, and ten processes,
// two of them shell loops of curl, wait for them. Each runs once.
func TestTenConsumers(t *testing.T) {
	f := newFleet(t)
	n := 2000
	if long {
		n = 10_000
	}
	for range 8 {
		f.work("--concurrency", "16")
	}
	if _, err := exec.LookPath("curl"); err == nil {
		f.workWithCurl()
		f.workWithCurl()
	} else {
		t.Log("no curl here: eight consumers instead of ten")
	}
	due := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	f.schedule(n, func(int) time.Time { return due })
	if repeated := f.finish(n); len(repeated) > 0 {
		t.Errorf("%d runs were repetitions, such as %+v", len(repeated), repeated[0])
	}
}

// TestConsumerKilled: one of three workers is killed halfway. All tasks run; only
// what it held is repeated, once its lease is over.
func TestConsumerKilled(t *testing.T) {
	f := newFleet(t)
	n := 2000
	if long {
		n = 20_000
	}
	f.schedule(n, overdue)
	const hands, lease = 8, 2 * time.Second
	args := []string{"--concurrency", fmt.Sprint(hands), "--lease", lease.String()}
	victim := f.work(args...)
	f.work(args...)
	f.work(args...)
	f.poll("half of the tasks to run", func() bool { return len(f.runs()) > n/2 })
	kill(t, victim)
	killed := time.Now()
	for _, r := range f.finish(n) {
		if r.ClaimedAt.Before(killed) {
			t.Errorf("repeated before anything was killed: %+v", r)
		}
	}
	again := 0
	for _, r := range f.runs() {
		if r.Attempt > 1 {
			again++
		}
	}
	// What was in its hands, what they had done and not yet told, and what was
	// being told.
	if again > 3*hands {
		t.Errorf("%d tasks were handed out again, although a worker holds no more than %d", again, 3*hands)
	}
	t.Logf("%d tasks were handed out again", again)
}

// TestServerKilled: the server is killed and started again in the middle of
// overdue tasks, with three workers that live on. All tasks run; a task runs
// twice only where its lease was over.
func TestServerKilled(t *testing.T) {
	f := newFleet(t)
	n, kills := 3000, 3
	if long {
		n, kills = 20_000, 10
	}
	f.schedule(n, overdue)
	const lease = 5 * time.Second
	for range 3 {
		f.work("--concurrency", "8", "--lease", lease.String())
	}
	for i := range kills {
		f.poll("some tasks to run", func() bool { return len(f.runs()) > (i+1)*n/(kills+1) })
		f.killServer()
	}
	f.finish(n)
	byID := make(map[string]aRun)
	for _, r := range f.runs() {
		if last, ok := byID[r.ID]; ok && r.ClaimedAt.Sub(last.ClaimedAt) < lease {
			t.Errorf("%+v after %+v: the lease was not over", r, last)
		}
		byID[r.ID] = r
	}
}

// TestTerminated: SIGTERM, of which a service manager makes use, stops a server
// and a worker in good order.
func TestTerminated(t *testing.T) {
	f := newFleet(t)
	worker := f.work()
	f.schedule(1, overdue)
	f.finish(1) // so that the worker is at work
	for name, cmd := range map[string]*exec.Cmd{"work": worker, "serve": f.server} {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOldestFirst: what was scheduled later and was due earlier is handed out
// earlier, through a server too.
func TestOldestFirst(t *testing.T) {
	f := newFleet(t)
	const n = 200
	base := time.Now().Add(-time.Hour)
	f.schedule(n, func(i int) time.Time { return base.Add(time.Duration(i*7919%n) * time.Second) })
	f.work()
	f.finish(n)
	runs := f.runs()
	if !slices.IsSortedFunc(runs, func(a, b aRun) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.ID, b.ID))
	}) {
		t.Errorf("not in the order of their due times: %v", runs)
	}
}
