package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
)

// cleanupTimeout is for how long emptying may take after an interruption.
const cleanupTimeout = time.Minute

// queues are those that were made here. Their names tell what they are, and have a
// part that nobody can have chosen before.
type queues struct {
	r   *runner
	run string

	mu   sync.Mutex
	live map[string]*atomic.Int64 // how many tasks may be in there
}

func newQueues(r *runner) *queues {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return &queues{r: r, run: hex.EncodeToString(b[:]), live: make(map[string]*atomic.Int64)}
}

// open returns the queue for a job, which is empty. One in which there is anything
// already is somebody else's, and is refused.
func (q *queues) open(ctx context.Context, name string) (string, error) {
	name = QueuePrefix + name + "-" + q.run
	q.mu.Lock()
	known := q.live[name] != nil
	q.mu.Unlock()
	if known {
		return name, nil
	}
	stats, err := q.r.client.Stats(ctx, name)
	if err != nil {
		return "", err
	}
	if stats != (duetime.Stats{}) {
		return "", fmt.Errorf("there are tasks in queue %s, which nobody but this run can have made: it is left alone", name)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.live[name] = new(atomic.Int64)
	return name, nil
}

// count says that so many tasks came into a queue, or went from it.
func (q *queues) count(name string, n int) {
	q.mu.Lock()
	live := q.live[name]
	q.mu.Unlock()
	live.Add(int64(n))
}

// empty removes all tasks of a queue of this run.
func (q *queues) empty(ctx context.Context, name string) error {
	q.mu.Lock()
	live := q.live[name]
	q.mu.Unlock()
	if live == nil || !strings.HasPrefix(name, QueuePrefix) || !strings.HasSuffix(name, q.run) {
		return fmt.Errorf("queue %s is not one of this run's: it is left alone", name)
	}
	if q.r.caps.Purge {
		// In the order of a task's life, so that one that comes due meanwhile is
		// not missed.
		for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead} {
			if _, err := q.r.client.Purge(ctx, name, state); err != nil {
				return err
			}
		}
		live.Store(0)
		return nil
	}
	return q.runOut(ctx, name, live)
}

// runOut empties a queue of a store that can not purge: what is in it is claimed,
// and gone, as it comes due. Tasks of such stores are never far ahead; see far.
func (q *queues) runOut(ctx context.Context, name string, live *atomic.Int64) error {
	idle := time.Now()
	for live.Load() > 0 {
		results, err := q.r.store.Claim(ctx, []store.ClaimRequest{{Queue: name, Max: 1000, AtMostOnce: true}})
		if err != nil {
			return err
		}
		if n := len(results[0].Tasks); n > 0 {
			live.Add(-int64(n))
			idle = time.Now()
			continue
		}
		if time.Since(idle) > q.r.far()+5*time.Second {
			live.Store(0) // they were settled while nobody counted
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// emptyAll empties all queues, also where ctx has ended. interrupted: calls may still
// be on their way.
func (q *queues) emptyAll(ctx context.Context, interrupted bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	q.mu.Lock()
	names := make([]string, 0, len(q.live))
	for name := range q.live {
		names = append(names, name)
	}
	q.mu.Unlock()
	var errs []error
	for _, name := range names {
		if err := q.empty(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("emptying queue %s, which may have tasks left: %w", name, err))
		}
	}
	if interrupted && len(errs) == 0 {
		errs = append(errs, q.settle(ctx, names))
	}
	return errors.Join(errs...)
}

// settle empties queues again and again until nothing has come into them for a while:
// calls whose context has ended may still be on their way.
func (q *queues) settle(ctx context.Context, names []string) error {
	if q.r.caps.Uncounted {
		return nil
	}
	const quiet = 5 // times in a row
	for still := 0; still < quiet; still++ {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("looking whether queues have tasks left: %w", ctx.Err())
		}
		for _, name := range names {
			s, err := q.r.client.Stats(ctx, name)
			if err == nil && s != (duetime.Stats{}) {
				still = -1
				err = q.empty(ctx, name)
			}
			if err != nil {
				return fmt.Errorf("queue %s may have tasks left: %w", name, err)
			}
		}
	}
	return nil
}

// far is how far ahead tasks are scheduled that are not to come due: an hour, or,
// where they can not be taken away again, so short that one can wait for them.
func (r *runner) far() time.Duration {
	if r.caps.Purge {
		return time.Hour
	}
	return r.short
}
