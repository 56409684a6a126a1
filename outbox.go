package duetime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	settleTimeout    = 10 * time.Second // of one call
	settleBackoffMin = 10 * time.Millisecond
	settleBackoffMax = time.Second
)

// outbox tells the store what became of tasks. Hands put a run in and go on with
// the next task; one goroutine takes all that has come together since its last
// call and makes the next. What fails is tried again as long as its lease lasts.
//
// No more settlements wait than there are hands; then hands wait too. What is done
// and not yet told is done again if the process is killed: at most two tasks for
// each hand, one that waits and one that is being told, and the one in the hand.
type outbox struct {
	w    *Worker
	wake chan struct{}
	ctx  context.Context // ends when there is no time left for trying
	quit context.CancelFunc

	mu      sync.Mutex
	room    sync.Cond
	pending []*run
	limit   int // 0: not known yet
	closed  bool
}

func newOutbox(w *Worker) *outbox {
	o := &outbox{w: w, wake: make(chan struct{}, 1)}
	o.room.L = &o.mu
	o.ctx, o.quit = context.WithCancel(context.Background())
	return o
}

// add takes a run whose settlement is decided. It may wait for room.
func (o *outbox) add(r *run) {
	o.mu.Lock()
	for o.limit > 0 && len(o.pending) >= o.limit && !o.w.stopping.Load() {
		o.room.Wait()
	}
	o.pending = append(o.pending, r)
	first := len(o.pending) == 1
	o.mu.Unlock()
	if first {
		o.kick()
	}
}

func (o *outbox) kick() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// open lets in those who wait for room: the worker is stopping, so that there will
// not be many more.
func (o *outbox) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.room.Broadcast()
}

// close lets run end once everything has been told, or the time for that is over.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.kick()
}

func (o *outbox) run() {
	hands := 0
	for _, q := range o.w.queues {
		hands += q.opts.Concurrency
	}
	o.mu.Lock()
	o.limit = hands
	o.mu.Unlock()
	defer o.quit()
	var flush *time.Timer
	var spare []*run
	wait := settleBackoffMin
	for {
		o.mu.Lock()
		batch, closed := o.pending, o.closed
		o.pending = spare[:0]
		o.room.Broadcast()
		o.mu.Unlock()
		spare = nil
		if closed && flush == nil {
			flush = time.AfterFunc(flushTimeout, o.quit)
			defer flush.Stop()
		}
		if len(batch) == 0 {
			if closed {
				return
			}
			spare = batch
			<-o.wake
			continue
		}
		failed := o.send(batch)
		if len(failed) == 0 {
			wait = settleBackoffMin
			clear(batch)
			spare = batch
			continue
		}
		select {
		case <-time.After(wait - time.Duration(rand.Int64N(int64(wait)/2))):
		case <-o.ctx.Done():
			o.drop(failed, errors.New("the worker was stopped"))
			return
		}
		wait = min(2*wait, settleBackoffMax)
		o.mu.Lock()
		o.pending = append(failed, o.pending...)
		o.mu.Unlock()
	}
}

// send makes as many calls as it takes and returns the runs to try again, in a
// slice of its own.
func (o *outbox) send(batch []*run) (again []*run) {
	for len(batch) > 0 {
		n := min(len(batch), store.MaxBatch)
		again = append(again, o.call(batch[:n])...)
		batch = batch[n:]
	}
	return again
}

func (o *outbox) call(batch []*run) (again []*run) {
	settlements := make([]store.Settlement, len(batch))
	for i, r := range batch {
		settlements[i] = r.settlement
	}
	ctx, cancel := context.WithTimeout(o.ctx, settleTimeout)
	results, err := o.w.client.store.Settle(ctx, settlements)
	cancel()
	if err == nil && len(results) != len(batch) {
		err = fmt.Errorf("the store gave %d results for %d settlements", len(results), len(batch))
	}
	if err != nil {
		return o.failed(batch, err)
	}
	done := make([]*run, 0, len(batch))
	for i, r := range batch {
		switch err := results[i].Err; {
		case results[i].Outcome != store.Refused:
			done = append(done, r)
			o.report(r, results[i].Outcome)
		case errors.Is(err, store.ErrFull):
			again = append(again, o.failed(batch[i:i+1], err)...)
		case r.second:
			o.drop(batch[i:i+1], err)
		default:
			// Such as a delay that ends past the last due time. The handler's word
			// can not be kept, so the task is treated like any that has failed.
			r.second = true
			r.settlement = store.Settlement{
				Receipt: r.receipt, Action: store.Retry, Backoff: true,
				Error: fmt.Sprintf("%s was refused: %v\n%s", r.settlement.Action, err, r.settlement.Error),
			}
			again = append(again, r)
		}
	}
	o.w.leases.remove(done)
	return again
}

// failed returns those whose lease lasts long enough to try again, and drops the
// others.
func (o *outbox) failed(batch []*run, err error) (again []*run) {
	if errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrUnsupported) {
		o.drop(batch, err)
		return nil
	}
	now := time.Now()
	var over []*run
	for _, r := range batch {
		if o.w.leases.end(r).After(now) {
			again = append(again, r)
		} else {
			over = append(over, r)
		}
	}
	o.drop(over, err)
	return again
}

// drop gives up telling the store about runs: their leases end by themselves, and
// they are handed out again.
func (o *outbox) drop(batch []*run, err error) {
	if len(batch) == 0 {
		return
	}
	o.w.client.logger.Error("duetime: the store could not be told what became of tasks, which come again when their leases end",
		"tasks", len(batch), "worker", o.w.name, "error", err)
	o.w.leases.remove(batch)
	for _, r := range batch {
		o.report(r, store.Stale)
	}
}

// report tells the log and the hooks what became of a task.
func (o *outbox) report(r *run, outcome store.Outcome) {
	c := o.w.client
	switch {
	case outcome == store.Stale:
		if !r.stale.Load() && !r.late.Load() { // or else the keeper has told
			c.logger.Warn("duetime: lease lost before the store knew what became of the task", "queue", r.task.Queue, "id", r.task.ID, "attempt", r.task.Attempt, "worker", o.w.name)
			if c.hooks.LeaseLost != nil {
				c.hooks.LeaseLost(&r.task)
			}
		}
	case outcome == store.Dead:
		c.logger.Error("duetime: task is dead", "queue", r.task.Queue, "id", r.task.ID, "attempt", r.task.Attempt, "error", r.settlement.Error)
	case outcome == store.Retrying:
		c.logger.Warn("duetime: task failed and comes again", "queue", r.task.Queue, "id", r.task.ID, "attempt", r.task.Attempt, "error", r.settlement.Error)
	}
	if c.hooks.Settled != nil {
		c.hooks.Settled(&r.task, outcome, r.took, r.err)
	}
}
