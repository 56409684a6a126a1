package migrate

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/duetime/duetime/store"
)

// journalQueue is where a move keeps its books at the source: a lock, and a
// journal for each queue that is on its way.
const journalQueue = "duetime.migrate"

const (
	lockID    = "lock"
	lockLease = 15 * time.Second
)

// lock keeps two moves from one store apart. It is a task that the mover has a
// lease of, so that it is free again some time after the mover was killed.
type lock struct {
	st      store.Store
	receipt store.Receipt
	kept    time.Time
}

func takeLock(ctx context.Context, from, to store.Store, name string) (*lock, error) {
	host, _ := os.Hostname()
	worker := store.CleanWorker(fmt.Sprintf("%s, process %d, %s", host, os.Getpid(), rand.Text()[:8]))
	var until time.Time // when the lease ends that stands in the way
	free := 0           // how often it was free and yet not to be had
	for {
		r, err := from.Schedule(ctx, []store.NewTask{{Queue: journalQueue, ID: lockID}})
		if err != nil {
			return nil, err
		}
		if r[0].Outcome == store.Refused {
			return nil, fmt.Errorf("the store that tasks are to be moved from can not note anything: %w", r[0].Err)
		}
		claims, err := from.Claim(ctx, []store.ClaimRequest{{Queue: journalQueue, Max: 1, Lease: lockLease, Worker: worker}})
		if err != nil {
			return nil, err
		}
		if claims[0].Err != nil {
			return nil, claims[0].Err
		}
		if len(claims[0].Tasks) == 1 {
			l := &lock{st: from, receipt: claims[0].Tasks[0].Receipt, kept: time.Now()}
			if err := l.apart(ctx, to, name, worker); err != nil {
				_ = l.release(ctx)
				return nil, err
			}
			return l, nil
		}
		there, err := from.Get(ctx, []store.Key{{Queue: journalQueue, ID: lockID}})
		if err != nil {
			return nil, err
		}
		if t := there[0].Task; t != nil && t.State == store.StateLeased {
			if until.IsZero() {
				until = t.LeaseUntil
			} else if t.LeaseUntil.After(until) {
				return nil, fmt.Errorf("another move from this store is under way: %s", t.Worker)
			}
		} else if free++; free > 20 {
			return nil, fmt.Errorf("the lock, task %q in queue %s, can not be claimed: is that queue paused?", lockID, journalQueue)
		}
		// It may have been killed: its lease will tell.
		if sleep(ctx, 500*time.Millisecond); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// apart makes sure that the two stores are not one.
func (l *lock) apart(ctx context.Context, to store.Store, name, worker string) error {
	r, err := to.Get(ctx, []store.Key{{Queue: journalQueue, ID: lockID}})
	if err != nil {
		return err
	}
	if t := r[0].Task; t != nil && t.State == store.StateLeased && t.Worker == worker {
		return store.NewInputError("TO", name, "is the same store as FROM")
	}
	return nil
}

// keep makes sure that the lock is ours for some time to come.
func (l *lock) keep(ctx context.Context) error {
	if time.Since(l.kept) < lockLease/6 {
		return nil
	}
	now := time.Now()
	r, err := l.st.Settle(ctx, []store.Settlement{{Receipt: l.receipt, Action: store.Extend, Lease: lockLease}})
	if err != nil {
		return err
	}
	if r[0].Outcome != store.Extended {
		return fmt.Errorf("the lock on the source is lost (%v): it took too long to answer, or somebody else moves its tasks; run the same command again", r[0].Outcome)
	}
	l.kept = now
	return nil
}

func (l *lock) release(ctx context.Context) error {
	_, err := l.st.Settle(context.WithoutCancel(ctx), []store.Settlement{{Receipt: l.receipt, Action: store.Ack}})
	return err
}
