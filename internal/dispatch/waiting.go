package dispatch

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// waitAtStore is how long a store that waits itself is asked to wait.
	waitAtStore = 30 * time.Second
	// soon: an answer without tasks that came sooner is not the end of a wait but
	// the store's way to say "not now", and is followed by a pause.
	soon = time.Second
)

// atStore is what a dispatcher knows of a store that waits itself: there are no
// loops then, and each Take is a call of its own.
type atStore struct {
	claimer store.WaitingClaimer // nil: the store does not wait
	ctx     context.Context      // ends when those who wait are to be sent away
	cancel  context.CancelFunc

	// Under Dispatcher.mu.
	waiting      int
	failingSince time.Time // zero: the last call succeeded
	lastError    error
}

func newAtStore(st store.Store) atStore {
	var a atStore
	a.claimer, _ = store.As[store.WaitingClaimer](st)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// takeAtStore is Take over a store that waits itself.
func (d *Dispatcher) takeAtStore(ctx context.Context, req store.ClaimRequest) ([]store.Lease, error) {
	a := &d.atStore
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, store.ErrClosed
	}
	d.work.Add(1)
	a.waiting++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		a.waiting--
		d.mu.Unlock()
		d.work.Done()
	}()
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()

	for failures, barren := 0, 0; ; {
		sent := time.Now()
		r, err := a.claimer.ClaimWait(wait, req, waitAtStore)
		if err == nil && r.Err != nil {
			return nil, r.Err
		}
		if len(r.Tasks) > 0 && (wait.Err() == nil || req.AtMostOnce) {
			d.heard(nil)
			return r.Tasks, nil
		}
		if wait.Err() != nil {
			select { // so that a process that ends after this leaves nothing leased
			case <-d.release(r.Tasks, true):
			case <-time.After(leaveTimeout):
			}
			if ctx.Err() == nil {
				return nil, store.ErrClosed
			}
			return nil, ctx.Err()
		}
		d.heard(err)
		switch {
		case err != nil && isFinal(err):
			return nil, err
		case err != nil:
			failures, barren = failures+1, 0
			if failures&(failures-1) == 0 {
				d.logger.Warn("duetime: claim failed, trying again", "queue", req.Queue, "failures", failures, "error", err)
			}
		case time.Since(sent) < soon:
			failures, barren = 0, barren+1
		default:
			failures, barren = 0, 0
		}
		if n := max(failures, barren); n > 0 {
			timer := time.NewTimer(jitter(min(backoffMin<<min(n-1, 10), backoffMax)))
			select {
			case <-timer.C:
			case <-wait.Done():
				timer.Stop()
			}
		}
	}
}

// heard notes how the last call went.
func (d *Dispatcher) heard(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &d.atStore
	if a.lastError = err; err == nil {
		a.failingSince = time.Time{}
	} else if a.failingSince.IsZero() {
		a.failingSince = d.clock.Now()
	}
}

// healthAtStore adds to h. An answer may be half a minute away without anything
// being wrong, so that all is well until a call fails. Called under the mutex.
func (d *Dispatcher) healthAtStore(h *Health) {
	a := &d.atStore
	if a.waiting == 0 {
		return
	}
	h.Waiting += a.waiting
	if !a.failingSince.IsZero() {
		h.LastSuccess, h.LastError = a.failingSince, a.lastError
	}
}
