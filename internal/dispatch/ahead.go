package dispatch

import (
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// A claim of a store that syncs a disk takes milliseconds, and whoever is due has to
// wait for it, and for the one before it, which is still on its way. So the store is
// asked for what comes due within the next few milliseconds, too, if it can do that,
// and what it leases is held here until it is due. Claims go on meanwhile.
//
// What is held waits for whoever it was claimed for, or for another of the same kind.
// As it can be given to nobody else without the store's being told, so much is held
// alone as those who wait can take: one task for one that takes one at a time, and
// more for those who, as is known of them, come back at once when they were given
// less than they can take.

const (
	// nothing is how long a loop sleeps that has nothing to wait for but a kick.
	nothing = time.Hour
	// grace is for how long what is due waits for its taker, who ought to have been
	// there, before it is given back for others.
	grace = 20 * time.Millisecond
	// clockFor is for how long the best estimate of the store's clock is kept.
	clockFor = 5 * time.Second
	// manyKinds is of how many kinds of waiters the habits are known.
	manyKinds = 1000
)

// kind is what a lease depends on that is not to be seen from the task.
type kind struct {
	lease  time.Duration
	worker string
}

func kindOf(r *store.ClaimRequest) kind { return kind{r.Lease, r.Worker} }

type heldLease struct {
	store.Lease
	kind
}

// habit is whether those of a kind come back at once.
type habit struct {
	served time.Time // with less than they can take; zero: they are back
	stays  bool
}

// aheadOf is what a queue has where the store claims ahead. All but replies and ticked,
// which are the loop's, is under Dispatcher.mu.
type aheadOf struct {
	replies chan reply // of the claim on its way; nil: the store does not claim ahead
	flying  bool       // there is one
	ticked  bool       // something came up meanwhile
	held    []heldLease
	habits  map[kind]*habit
	leaving []chan struct{} // to be closed when nothing is held any more
	shown   time.Time       // what the store's clock showed
	heard   time.Time       // when, here
}

// joined notes that somebody waits. Called under the mutex.
func (q *queue) joined(w *waiter) {
	if h := q.habits[kindOf(&w.req)]; h != nil && !h.served.IsZero() {
		h.stays = q.d.clock.Now().Sub(h.served) < q.d.ahead
		h.served = time.Time{}
	}
}

// served notes that somebody was answered. Called under the mutex.
func (q *queue) served(w *waiter, n int) {
	if q.d.ahead == 0 || n == 0 || n == w.req.Max {
		return // whoever has all he can take has reason not to come back
	}
	h := q.habits[kindOf(&w.req)]
	if h == nil {
		if q.habits == nil || len(q.habits) == manyKinds {
			q.habits = make(map[kind]*habit)
		}
		h = new(habit)
		q.habits[kindOf(&w.req)] = h
	}
	h.served = q.d.clock.Now()
}

func (q *queue) stays(k kind) bool {
	h := q.habits[k]
	return h != nil && h.stays
}

// heldFor counts what is held.
func (q *queue) heldFor() map[kind]int {
	if len(q.held) == 0 {
		return nil
	}
	n := make(map[kind]int)
	for i := range q.held {
		n[q.held[i].kind]++
	}
	return n
}

// narrow makes a waiter's request one for what he can take besides that which is held
// for him, and says how far ahead it may be. It is false where he can take no more.
func (q *queue) narrow(r *store.ClaimRequest, held map[kind]int) bool {
	k := kindOf(r)
	if !r.AtMostOnce && (r.Max == 1 || q.stays(k)) {
		r.Ahead = q.d.ahead
	}
	n := min(held[k], r.Max)
	if n > 0 {
		held[k] -= n
		r.Max -= n
	}
	return r.Max > 0
}

// heardClock takes in what the store's clock showed when it answered. As an answer
// takes time, what is made of it lags, which is the better side to be wrong on, and
// the best is that which lags least.
func (q *queue) heardClock(a *reply) {
	for i := range a.results {
		r := &a.results[i]
		if r.Err != nil || r.Now.IsZero() {
			continue
		}
		if q.heard.IsZero() || a.back.Sub(q.heard) > clockFor || r.Now.After(q.storeClock(a.back)) || r.Now.Before(q.storeClock(a.sent)) {
			q.shown, q.heard = r.Now, a.back
		}
	}
}

// storeClock is what the store's clock shows at an instant of ours, or a little less.
func (q *queue) storeClock(at time.Time) time.Time { return q.shown.Add(at.Sub(q.heard)) }

// hold answers a waiter with what is due, and keeps the rest. Called under the mutex.
func (q *queue) hold(w *waiter, r *store.ClaimResult) {
	if r.Err != nil || w.gone && !w.answered {
		q.reply(w, answer{leases: r.Tasks, err: r.Err})
		return
	}
	due := len(r.Tasks)
	if w.answered {
		due = 0
	} else if !w.req.AtMostOnce {
		now := q.storeClock(q.d.clock.Now())
		for due > 0 && r.Tasks[due-1].Due.After(now) {
			due--
		}
		for i := range r.Tasks[:due] {
			r.Tasks[i].ClaimedAt = later(r.Tasks[i].ClaimedAt, r.Tasks[i].Due)
		}
	}
	k := kindOf(&w.req)
	for _, l := range r.Tasks[due:] {
		q.held = append(q.held, heldLease{l, k})
	}
	slices.SortStableFunc(q.held, func(a, b heldLease) int { return a.Due.Compare(b.Due) })
	if due > 0 {
		q.reply(w, answer{leases: r.Tasks[:due:due]})
	}
}

// deliver hands out what is held and has come due, and gives back what nobody came for.
// It returns until when there is nothing more to do. Called under the mutex.
func (q *queue) deliver(wall time.Time) (until time.Time) {
	until = wall.Add(nothing)
	if q.waiters.len == 0 && !q.flying && len(q.leaving) > 0 {
		q.dropLocked()
	}
	if len(q.held) == 0 {
		return until
	}
	now := q.storeClock(q.d.clock.Now())
	var order []*waiter
	given := make(map[*waiter][]store.Lease)
	var over []store.Lease
	kept := q.held[:0]
	for _, h := range q.held {
		if h.Due.After(now) {
			until = earlier(until, wall.Add(h.Due.Sub(now)))
			kept = append(kept, h)
			continue
		}
		if left := h.LeaseUntil.Sub(now); left < h.LeaseUntil.Sub(h.Due)/2 {
			over = append(over, h.Lease) // the process was stopped
			continue
		}
		w := q.waiterFor(h.kind, given)
		switch late := now.Sub(h.Due); {
		case w != nil:
			h.ClaimedAt = now
			if given[w] == nil {
				order = append(order, w)
			}
			given[w] = append(given[w], h.Lease)
		case late < grace:
			until = earlier(until, wall.Add(grace-late))
			kept = append(kept, h)
		default:
			over = append(over, h.Lease)
		}
	}
	clear(q.held[len(kept):])
	q.held = kept
	for _, w := range order {
		q.reply(w, answer{leases: given[w]})
	}
	q.d.releaseLocked(over, true)
	return until
}

// waiterFor is who may be given a task that is held, and has not been given all he can
// take. Called under the mutex.
func (q *queue) waiterFor(k kind, given map[*waiter][]store.Lease) *waiter {
	for w := q.waiters.first; w != nil; w = w.next {
		if !w.req.AtMostOnce && kindOf(&w.req) == k && len(given[w]) < w.req.Max {
			return w
		}
	}
	return nil
}

// sooner is how long to wait before the next claim, where the store says that
// something comes due after wait.
func (q *queue) sooner(wait time.Duration, a *reply) time.Duration {
	ahead := q.d.ahead
	reach := wait - ahead
	if a.requests[0].Ahead == 0 {
		if reach > ahead/2 {
			return reach
		}
		return wait
	}
	for i := range a.results {
		if len(a.results[i].Tasks) == a.requests[i].Max {
			return max(0, reach) // there is more
		}
	}
	// Each task comes into reach on its own. A claim for several costs no more.
	return max(0, min(wait, max(reach, ahead/2-a.back.Sub(a.sent))))
}

// leaveHeld is called when somebody has left, under the mutex. If he was the last, and
// something is held or on its way, it returns a channel that is closed when that was
// given back.
func (q *queue) leaveHeld() <-chan struct{} {
	if q.waiters.len > 0 || !q.flying && len(q.held) == 0 {
		return nil
	}
	c := make(chan struct{})
	q.leaving = append(q.leaving, c)
	q.kick()
	return c
}

// dropHeld gives everything back as the loop ends, what is on its way included.
func (q *queue) dropHeld() {
	if q.d.ahead == 0 {
		return
	}
	q.d.mu.Lock()
	flying := q.flying
	q.d.mu.Unlock()
	if flying {
		q.took(<-q.replies)
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	q.dropLocked()
}

func (q *queue) dropLocked() {
	leases := make([]store.Lease, len(q.held))
	for i := range q.held {
		leases[i] = q.held[i].Lease
	}
	q.held = nil
	done := q.d.releaseLocked(leases, true)
	leaving := q.leaving
	q.leaving = nil
	if len(leaving) > 0 {
		q.d.work.Go(func() {
			<-done
			for _, c := range leaving {
				close(c)
			}
		})
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
