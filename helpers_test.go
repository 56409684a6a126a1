package duetime_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

func quiet() *duetime.ClientOptions {
	return &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)}
}

// line is the connection of one process to a store that several share. It can be
// cut, and it counts.
type line struct {
	store.Store
	down     atomic.Bool // every call fails
	noSettle atomic.Bool // Settle fails
	noExtend atomic.Bool // Settle of an extension fails
	lose     atomic.Bool // Settle is carried out, and its answer lost
	claims   sync.Map    // queue → *atomic.Int64
	fail     func(claim int64) error
}

var errLost = errors.New("connection lost")

func (l *line) claimed(queue string) *atomic.Int64 {
	n, _ := l.claims.LoadOrStore(queue, new(atomic.Int64))
	return n.(*atomic.Int64)
}

func (l *line) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if l.down.Load() {
		return nil, errLost
	}
	return l.Store.Schedule(ctx, tasks)
}

func (l *line) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	for _, r := range requests {
		n := l.claimed(r.Queue).Add(1)
		if l.fail != nil {
			if err := l.fail(n); err != nil {
				return nil, err
			}
		}
	}
	if l.down.Load() {
		return nil, errLost
	}
	return l.Store.Claim(ctx, requests)
}

func (l *line) Settle(ctx context.Context, s []store.Settlement) ([]store.Result, error) {
	if l.down.Load() || l.noSettle.Load() || l.noExtend.Load() && s[0].Action == store.Extend {
		return nil, errLost
	}
	r, err := l.Store.Settle(ctx, s)
	if l.lose.Load() {
		return nil, errLost
	}
	return r, err
}

// lines returns clients of as many processes, on one store.
func lines(t *testing.T, n int) ([]*line, []*duetime.Client) {
	t.Helper()
	shared := memstore.New(nil)
	ls := make([]*line, n)
	clients := make([]*duetime.Client, n)
	for i := range ls {
		ls[i] = &line{Store: shared}
		clients[i] = duetime.NewClient(ls[i], quiet())
		t.Cleanup(func() { _ = clients[i].Close() })
	}
	return ls, clients
}

func newClient(t *testing.T) (*duetime.Client, *line) {
	t.Helper()
	ls, clients := lines(t, 1)
	return clients[0], ls[0]
}

// runner is a worker that runs.
type runner struct {
	*duetime.Worker
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func run(t *testing.T, w *duetime.Worker) *runner {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{Worker: w, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = w.Run(ctx)
	}()
	t.Cleanup(func() {
		r.Worker.Stop()
		r.Worker.Stop()
		<-r.done
		cancel()
	})
	return r
}

// stop ends the context, waits for Run and returns how long that took.
func (r *runner) stop(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	r.cancel()
	<-r.done
	if r.err != nil {
		t.Errorf("Run: %v", r.err)
	}
	return time.Since(start)
}

func schedule(t *testing.T, c *duetime.Client, id string, delay time.Duration) {
	t.Helper()
	s, err := c.Schedule(t.Context(), "q", duetime.NewTask{ID: id, Payload: []byte("payload of " + id), Delay: delay})
	if err != nil || s.Outcome != duetime.OutcomeCreated || s.ID != id {
		t.Fatalf("schedule %s: %+v, %v", id, s, err)
	}
}

func update(t *testing.T, c *duetime.Client, change func(*duetime.Settings)) {
	t.Helper()
	if _, err := c.UpdateSettings(t.Context(), "q", change); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *duetime.Client, id string) *duetime.Task {
	t.Helper()
	task, err := c.Get(context.Background(), "q", id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func gone(t *testing.T, c *duetime.Client, id string) {
	t.Helper()
	if task, err := c.Get(context.Background(), "q", id); !errors.Is(err, duetime.ErrNotFound) {
		t.Errorf("task %s is still there: %+v, %v", id, task, err)
	}
}

// journal notes what hooks and handlers see.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) note(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, s)
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entries
	j.entries = nil
	return e
}
