package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime"
)

// stall is for how long nothing may happen before a measurement is given up.
const stall = 30 * time.Second

// tallies says which queue's tasks are counted by whom. Hooks read it on the way of
// the tasks, so it is not locked.
type tallies struct{ now atomic.Pointer[tally] }

func (t *tallies) settled(task *duetime.Task, o duetime.Outcome) {
	if y := t.now.Load(); y != nil && y.queue == task.Queue {
		y.settled(o)
	}
}

// tally counts what becomes of the tasks of one queue.
type tally struct {
	queue string
	begun time.Time

	first   atomic.Int64 // hand-out, in ns after begun; 0 before it
	handled atomic.Int64
	acked   atomic.Int64
	other   atomic.Int64 // neither: a lease was lost, the store failed
	last    atomic.Int64 // ack, in ns after begun
	want    atomic.Int64 // how many acks are all; 0 until it is known
	done    chan struct{}
	once    sync.Once
}

func (r *runner) newTally(queue string, want int) *tally {
	t := &tally{queue: queue, begun: time.Now(), done: make(chan struct{})}
	t.want.Store(int64(want))
	r.tally.now.Store(t)
	return t
}

func (t *tally) handle() {
	if t.handled.Add(1) == 1 {
		t.first.Store(int64(time.Since(t.begun)))
	}
}

func (t *tally) settled(o duetime.Outcome) {
	if o != duetime.OutcomeAcked {
		t.other.Add(1)
		return
	}
	if n := t.acked.Add(1); n == t.want.Load() {
		t.end()
	}
}

// expect says how many acks are all.
func (t *tally) expect(n int) {
	t.want.Store(int64(n))
	if t.acked.Load() == int64(n) {
		t.end()
	}
}

func (t *tally) end() {
	t.once.Do(func() {
		t.last.Store(int64(time.Since(t.begun)))
		close(t.done)
	})
}

// wait waits until all are acked.
func (t *tally) wait(ctx context.Context) error {
	seen, since := int64(-1), time.Now()
	for {
		select {
		case <-t.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if n := t.acked.Load() + t.other.Load(); n != seen {
			seen, since = n, time.Now()
		} else if time.Since(since) > stall {
			return fmt.Errorf("%d of %d tasks were done, and nothing more for %v", t.acked.Load(), t.want.Load(), stall)
		}
	}
}

// rate is in tasks a second, from the first hand-out to the last ack.
func (t *tally) rate() float64 {
	return float64(t.acked.Load()) / time.Duration(t.last.Load()-t.first.Load()).Seconds()
}

// work runs a worker on queues until stop is called.
func (r *runner) work(ctx context.Context, handlers map[string]duetime.Handler) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	w := duetime.NewWorker(r.client, &duetime.WorkerOptions{Concurrency: r.Workers})
	for queue, h := range handlers {
		w.Handle(queue, h)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}
