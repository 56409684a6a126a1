package rabbitstore

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// lease is a message in somebody's hands.
type lease struct {
	entry
	until time.Time
}

// expired takes out the leases that are over. Under mu.
func (l *lane) expired(now time.Time) []*returned {
	var over []*returned
	for {
		token, until := l.nextEnd()
		if until.IsZero() || until.After(now) {
			break
		}
		held := l.leases[token]
		delete(l.leases, token)
		over = append(over, l.lost(&held.entry))
	}
	slices.SortFunc(over, func(a, b *returned) int {
		return cmp.Or(a.task.Due.Compare(b.task.Due), cmp.Compare(a.seq, b.seq))
	})
	return over
}

// expire ends the leases that are over, and returns when their tasks are back.
func (l *lane) expire(now time.Time) error {
	l.returning.Lock()
	return l.expireLocked(now)
}

func (l *lane) expireLocked(now time.Time) error {
	l.mu.Lock()
	over := l.expired(now)
	l.mu.Unlock()
	left, err := l.giveBack(over)
	l.returning.Unlock()
	if len(left) > 0 {
		l.store.work.Go(func() { l.insist(left) })
	}
	if len(over) > 0 {
		l.wakePump()
	}
	return err
}

// expireSoon is expire for those who can not wait. It is false where another is
// at it.
func (l *lane) expireSoon(now time.Time) bool {
	if !l.returning.TryLock() {
		return false
	}
	l.mu.Lock()
	_, until := l.nextEnd()
	l.mu.Unlock()
	if until.IsZero() || until.After(now) {
		l.returning.Unlock()
		return true
	}
	l.store.work.Go(func() { _ = l.expireLocked(now) })
	return false
}

// end is when a lease ends; one that was extended has several, of which the one
// that its lease names is true.
type end struct {
	until time.Time
	token uint64
}

// ends is a heap.
type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// nextEnd is the lease that ends next, and when; zero where there is none. Under
// mu.
func (l *lane) nextEnd() (token uint64, until time.Time) {
	for len(l.ends) > 0 {
		first := l.ends[0]
		if held := l.leases[first.token]; held != nil && held.until.Equal(first.until) {
			return first.token, first.until
		}
		heap.Pop(&l.ends)
	}
	return 0, time.Time{}
}

// endsAt sets the end of a lease. Under mu.
func (l *lane) endsAt(token uint64, until time.Time) {
	l.leases[token].until = until
	heap.Push(&l.ends, end{until, token})
}

// hand makes leases of entries for a request.
func (l *lane) hand(e *entry, r *store.ClaimRequest, now time.Time, conf *queueConf) store.Lease {
	t := e.task
	t.State, t.Worker = store.StateLeased, store.CleanWorker(r.Worker)
	token := l.store.token.Add(1)
	t.LeaseUntil = store.CeilMilli(now.Add(cmp.Or(r.Lease, conf.settings.Lease)))
	l.leases[token] = &lease{entry: *e}
	l.endsAt(token, t.LeaseUntil)
	receipt := store.ReceiptParts{Queue: t.Queue, ID: t.ID, Attempt: uint32(t.Attempt()), Token: token}
	return store.Lease{Task: t, Receipt: receipt.Encode(), ClaimedAt: now.UTC()}
}
