package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// few is for how many waiters a claim asks when something is due, of which it
	// is not known how much. While all get what they asked for and more is ready,
	// it doubles, so that a herd is served in few calls, and one task costs little
	// with thousands waiting.
	few = 4

	// Where the store fails, claims are tried again after a time that doubles.
	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second

	// A claim that comes back empty although something should have been there
	// (others were quicker, or the clocks disagree) is followed by a pause that
	// doubles: short at first, because the most likely reason is that the store's
	// clock is microseconds behind.
	pauseMin = 50 * time.Microsecond
	pauseMax = 10 * time.Millisecond

	// virtualMax is the longest sleep where time is make-believe.
	virtualMax = time.Hour
)

// reason is why a claim is made.
type reason uint8

const (
	asked reason = iota // something may be there: a tick, the first waiter, more where the last came from
	due                 // the store has said that something would be there by now
	poll                // nothing is known to be there
)

// queue is the loop of one queue. What is not said to be under Dispatcher.mu
// belongs to the loop.
type queue struct {
	d      *Dispatcher
	name   string
	kicked chan struct{}

	// Under Dispatcher.mu.
	waiters     list
	lastSuccess time.Time
	lastError   error
	aheadOf

	next      time.Time     // when to claim again
	span      time.Duration // how far away that was when it was decided
	why       reason
	notBefore time.Time     // after a failure: no tick makes it earlier
	width     int           // for how many waiters to claim
	fallback  time.Duration // how long to sleep where nothing is known
	idleSince time.Time     // since when nobody waits; zero: somebody does
	failures  int           // claims that failed in a row
	barren    int           // claims in a row that should have brought something and did not
}

func newQueue(d *Dispatcher, name string) *queue {
	q := &queue{
		d: d, name: name, kicked: make(chan struct{}, 1),
		lastSuccess: d.clock.Now(), width: few, fallback: d.fallback,
	}
	if d.ahead > 0 {
		q.replies = make(chan reply, 1)
	}
	return q
}

func (q *queue) kick() {
	select {
	case q.kicked <- struct{}{}:
	default:
	}
}

func (q *queue) run() {
	ticks, stop := q.d.store.Wake(q.name)
	defer stop()
	alarm := q.d.clock.NewAlarm()
	defer alarm.Stop()
	defer q.dropHeld()
	var armed time.Time // what the alarm is set to; zero: it is not
	for {
		until, ok := q.step()
		if !ok {
			return
		}
		now := q.now()
		if !until.After(now) {
			// There is more to claim. Ticks that come meanwhile say nothing new, and
			// are still there when it is over.
			continue
		}
		// To set an alarm costs a system call, so one that rings earlier, in vain, is
		// left: a busy loop comes by here for every claim.
		if armed.IsZero() || until.Before(armed) || !armed.After(now) {
			alarm.Set(until)
			armed = until
		}
		select {
		case <-ticks:
			q.fallback = q.d.fallback
			now := q.now()
			q.plan(now, min(max(0, q.notBefore.Sub(now)), backoffMax), asked)
			q.ticked = q.flying
		case <-alarm.C():
			armed = time.Time{}
		case <-q.kicked:
		case r := <-q.replies:
			if !q.took(r) {
				return
			}
		}
	}
}

// now is the wall clock, without the monotonic one.
func (q *queue) now() time.Time { return q.d.clock.Now().Round(0) }

// plan says when to claim next, and why.
func (q *queue) plan(from time.Time, wait time.Duration, why reason) {
	q.next, q.span, q.why = from.Add(wait), wait, why
}

// step claims if it is time to, and returns until when to sleep, or false when the
// loop is to end.
func (q *queue) step() (until time.Time, ok bool) {
	d := q.d
	d.mu.Lock()
	now := q.now()
	until = now.Add(nothing)
	if q.d.ahead > 0 {
		until = q.deliver(now)
	}
	switch {
	case d.closed:
		q.end(store.ErrClosed)
		d.mu.Unlock()
		return time.Time{}, false
	case q.flying || q.waiters.len == 0 && len(q.held) > 0:
		d.mu.Unlock()
		return until, true
	case q.waiters.len == 0:
		defer d.mu.Unlock()
		if q.idleSince.IsZero() || now.Before(q.idleSince) {
			q.idleSince = now
		}
		if until := q.idleSince.Add(d.linger); now.Before(until) {
			return until, true
		}
		q.end(nil)
		return time.Time{}, false
	}
	q.idleSince = time.Time{}
	// Further away than when it was decided: the wall clock has jumped back.
	if wait := q.next.Sub(now); wait > 0 && wait <= q.span {
		d.mu.Unlock()
		return earlier(until, q.next), true
	}
	width := q.width
	if q.why == poll {
		width = 1
	}
	chosen, requests := q.pick(width)
	if len(chosen) == 0 { // all have what they can take, and wait for it to come due
		d.mu.Unlock()
		return until, true
	}
	if d.ahead > 0 {
		// What is held comes due while the store is asked for more.
		q.flying, q.ticked = true, false
		d.work.Go(func() { q.replies <- q.ask(chosen, requests) })
		d.mu.Unlock()
		return until, true
	}
	d.mu.Unlock()

	if !q.took(q.ask(chosen, requests)) {
		return time.Time{}, false
	}
	return q.next, true
}

// end takes the queue out of the dispatcher and sends all waiters away. Called
// under the mutex.
func (q *queue) end(err error) {
	for w := q.waiters.first; w != nil; w = q.waiters.first {
		q.reply(w, answer{err: err})
	}
	delete(q.d.queues, q.name)
}

// pick chooses whom to claim for. Called under the mutex, with somebody waiting, and
// no claim on its way.
func (q *queue) pick(width int) ([]*waiter, []store.ClaimRequest) {
	n := min(width, q.waiters.len)
	chosen := make([]*waiter, 0, n)
	requests := make([]store.ClaimRequest, 0, n)
	tasks := 0
	held := q.heldFor()
	for w := q.waiters.first; w != nil && len(chosen) < n; w = w.next {
		req := w.req
		if q.d.ahead > 0 {
			if !q.narrow(&req, held) || len(requests) > 0 && req.Ahead != requests[0].Ahead {
				continue
			}
		}
		if tasks += req.Max; tasks > store.MaxBatch && len(chosen) > 0 {
			break
		}
		w.claiming = true
		chosen = append(chosen, w)
		requests = append(requests, req)
	}
	return chosen, requests
}

// reply is what a claim brought.
type reply struct {
	chosen     []*waiter
	requests   []store.ClaimRequest
	results    []store.ClaimResult
	err        error
	sent, back time.Time // by the clock, with its monotonic reading
}

// ask claims for some waiters.
func (q *queue) ask(chosen []*waiter, requests []store.ClaimRequest) reply {
	d := q.d
	ctx, cancel := context.WithTimeout(d.ctx, callTimeout)
	defer cancel()
	r := reply{chosen: chosen, requests: requests, sent: d.clock.Now()}
	r.results, r.err = d.store.Claim(ctx, requests)
	r.back = d.clock.Now()
	if r.err == nil && len(r.results) != len(requests) {
		r.err = fmt.Errorf("the store gave %d results for %d claims", len(r.results), len(requests))
	}
	return r
}

// took hands out what a claim brought, and plans the next claim. It reports false when
// there is no use in going on.
func (q *queue) took(a reply) bool {
	d := q.d
	if a.err != nil {
		return q.failed(a.chosen, a.err)
	}
	if q.failures > 0 {
		d.logger.Info("duetime: the store answers again", "queue", q.name, "failures", q.failures)
	}
	q.failures, q.notBefore = 0, time.Time{}

	got, served := 0, 0
	var last *store.ClaimResult
	var orphans []store.Lease
	d.mu.Lock()
	q.flying = false
	q.lastSuccess, q.lastError = d.clock.Now(), nil
	if d.ahead > 0 {
		q.heardClock(&a)
	}
	for i, w := range a.chosen {
		r := &a.results[i]
		w.claiming = false
		got += len(r.Tasks)
		if len(r.Tasks) > 0 {
			served++
		}
		if r.Err == nil {
			last = r
		}
		switch {
		case w.abandoned:
			orphans = append(orphans, r.Tasks...)
		case d.ahead > 0:
			q.hold(w, r)
		case w.gone || len(r.Tasks) > 0 || r.Err != nil:
			q.reply(w, answer{leases: r.Tasks, err: r.Err})
		}
	}
	d.mu.Unlock()
	d.release(orphans, true)
	q.learn(last, got, served == len(a.chosen), &a)
	if q.ticked {
		// Whether the claim saw what the tick was of is not known.
		q.ticked = false
		q.plan(a.back.Round(0), 0, asked)
	}
	return true
}

// reply ends a wait. Called under the mutex.
func (q *queue) reply(w *waiter, a answer) {
	if w.answered {
		return
	}
	q.served(w, len(a.leases))
	if !w.gone {
		q.waiters.remove(w)
	}
	w.answered = true
	w.answer <- a
}

// learn plans the next claim from what the last one brought.
func (q *queue) learn(r *store.ClaimResult, got int, allServed bool, a *reply) {
	sent, back := a.sent.Round(0), a.back.Round(0)
	if got > 0 {
		q.barren = 0
		q.fallback = q.d.fallback
	} else if q.why == due {
		q.barren++
	}
	width := q.width
	q.width = few
	switch {
	case r == nil: // wrong requests alone, which are out of the way now
		q.plan(back, 0, asked)
	case r.Next.IsZero():
		q.rest(back)
	case r.Next.After(r.Now):
		// By the store's clock; if that is this process's, take it as it is.
		// Otherwise the difference counts, from when the call was sent: as long as
		// the way there takes the same time again, the next call arrives when the
		// task is due.
		from, wait := sent, r.Next.Sub(r.Now)
		if !r.Now.Before(sent) && !r.Now.After(back) {
			from, wait = back, r.Next.Sub(back)
		}
		if q.d.ahead > 0 { // such a store says what its clock shows as it answers
			from, wait = back, q.sooner(r.Next.Sub(r.Now), a)
		}
		if from.Add(wait).Sub(back) > q.fallback {
			q.rest(back)
			return
		}
		if q.barren > 0 {
			from, wait = back, max(from.Add(wait).Sub(back), pause(q.barren, pauseMax))
		}
		q.plan(from, max(wait, 0), due)
	case got > 0: // more is ready
		if allServed {
			q.width = min(2*width, store.MaxBatch)
		}
		q.plan(back, 0, asked)
	default: // the store says that more is ready, and gave nothing
		q.plan(back, pause(q.barren+1, q.fallback), due)
	}
}

// rest plans to look again after a while, although nothing is known to be due.
func (q *queue) rest(from time.Time) {
	q.plan(from, q.fallback, poll)
	// Where time is make-believe the store is in this process and its ticks are
	// not lost: years must not cost a claim a second.
	if q.d.clock.Virtual() {
		q.fallback = min(2*q.fallback, max(virtualMax, q.d.fallback))
	}
}

// failed plans to try again.
func (q *queue) failed(chosen []*waiter, err error) bool {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	q.flying = false
	q.lastError = err
	for _, w := range chosen {
		w.claiming = false
		if w.gone && !w.abandoned {
			q.reply(w, answer{}) // it waits for this
		}
	}
	if isFinal(err) {
		q.end(err)
		return false
	}
	q.failures++
	if q.failures&(q.failures-1) == 0 { // 1, 2, 4, 8 …: a long outage fills no log
		d.logger.Warn("duetime: claim failed, trying again", "queue", q.name, "failures", q.failures, "error", err)
	}
	wait := jitter(min(backoffMin<<min(q.failures-1, 10), backoffMax))
	q.plan(q.now(), wait, poll)
	q.notBefore = q.next
	return true
}

// isFinal reports whether trying again is of no use.
func isFinal(err error) bool {
	var input *store.InputError
	return errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrUnsupported) || errors.As(err, &input)
}

// pause is how long to wait after so many claims in vain.
func pause(barren int, limit time.Duration) time.Duration {
	return min(pauseMin<<min(max(barren-1, 0), 20), limit)
}

// jitter takes up to a half off, so that processes that failed together do not
// come back together.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/2+1))
}

// list is the waiters of a queue, who came first first.
type list struct {
	first, last *waiter
	len         int
}

func (l *list) push(w *waiter) {
	w.prev = l.last
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
	l.len++
}

func (l *list) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next = nil, nil
	l.len--
}
