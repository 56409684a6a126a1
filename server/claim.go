package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

// MaxWait is how long a claim may wait.
const MaxWait = time.Minute

const maxWaitID = 64

func claim(c *call) error {
	how, err := c.payloads(wire.PayloadAsJSON)
	if err != nil {
		return err
	}
	var body wire.ClaimBody
	if err := c.decode(&body); err != nil {
		return err
	}
	request := store.ClaimRequest{Queue: c.params.queue, Max: 1, Worker: body.Worker}
	if body.Max != nil {
		request.Max = *body.Max
	}
	if body.Lease != nil {
		if request.Lease, err = timetext.Duration("lease", string(*body.Lease)); err != nil {
			return err
		}
		request.AtMostOnce = request.Lease == 0
		if !request.AtMostOnce && (request.Lease < store.MinLease || request.Lease > store.MaxLease) {
			return store.NewInputError("lease", request.Lease, "must be %v to %v, or 0s for at most once", store.MinLease, store.MaxLease)
		}
	}
	wait, err := optional("wait", body.Wait)
	if err != nil {
		return err
	}
	if wait < 0 || wait > MaxWait {
		return store.NewInputError("wait", wait, "must be 0s to %v", MaxWait)
	}
	if len(body.WaitID) > maxWaitID {
		return store.NewInputError("wait_id", body.WaitID, "is %d bytes long, the limit is %d", len(body.WaitID), maxWaitID)
	}
	if err := request.Check(); err != nil {
		return err
	}
	var result store.ClaimResult
	if wait == 0 {
		results, err := c.s.store.Claim(c.r.Context(), []store.ClaimRequest{request})
		if err != nil {
			return err
		}
		if result = results[0]; result.Err != nil {
			return result.Err
		}
	} else if result.Tasks, err = c.takeWithin(request, wait, body.WaitID); err != nil {
		return err
	}
	return c.handOut(result.Tasks, wire.FromClaimResult(&result, how))
}

// takeWithin waits for tasks. No tasks and no error: the wait is over, or the
// server stops.
func (c *call) takeWithin(request store.ClaimRequest, wait time.Duration, waitID string) ([]store.Lease, error) {
	// The body is read; what counts now is that the connection is watched for the
	// client's going, which a read deadline would end.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})

	ctx, cancel := context.WithTimeout(c.r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(c.s.stopping, cancel)()
	if waitID != "" {
		defer c.s.waits.add(waitID, cancel)()
	}

	c.s.metrics.waiting.Inc()
	leases, err := c.s.dispatch.Take(ctx, request)
	c.s.metrics.waiting.Dec()
	switch {
	case err == nil:
		return leases, nil
	case c.r.Context().Err() != nil:
		return nil, &goneError{c.r.Context().Err()}
	case ctx.Err() != nil, errors.Is(err, store.ErrClosed) && c.s.stopping.Err() != nil:
		return nil, nil
	}
	return nil, err
}

// handOut answers with tasks. Where the client has gone they are released, so
// that others get them at once and not when the lease runs out.
func (c *call) handOut(leases []store.Lease, answer any) error {
	if len(leases) == 0 {
		return c.answer(http.StatusOK, answer)
	}
	err := c.r.Context().Err()
	if err == nil {
		c.s.handedOut(leases)
		err = c.answer(http.StatusOK, answer)
		if err == nil {
			// Small answers wait in a buffer until the handler returns. Sent now, a
			// connection that is broken already shows. Once it is sent, that the
			// client is gone says nothing: one that makes a connection for each call
			// closes it as soon as it has the answer.
			err = http.NewResponseController(c.w).Flush()
		}
	}
	if err == nil {
		return nil
	}
	c.s.release(leases)
	return &goneError{err}
}

// release gives leases back whose worker never heard of them.
func (s *Server) release(leases []store.Lease) {
	settlements := make([]store.Settlement, 0, len(leases))
	for i := range leases {
		if leases[i].Receipt != "" {
			settlements = append(settlements, store.Settlement{Receipt: leases[i].Receipt, Action: store.Release})
		}
	}
	if len(settlements) < len(leases) {
		s.log.Warn("tasks claimed at most once are lost: their client went away", "queue", leases[0].Queue, "tasks", len(leases)-len(settlements))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	results, err := s.store.Settle(ctx, settlements)
	if err != nil {
		s.log.Warn("tasks of a client that went away could not be released: their leases will run out", "queue", leases[0].Queue, "tasks", len(settlements), "error", err)
		return
	}
	s.settled(settlements, results)
	s.metrics.gone.Add(float64(len(settlements)))
}

// waits are the claims that wait and have a name.
type waits struct {
	mu    sync.Mutex
	named map[string][]*context.CancelFunc
}

func (w *waits) add(name string, cancel context.CancelFunc) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.named == nil {
		w.named = map[string][]*context.CancelFunc{}
	}
	mine := &cancel
	w.named[name] = append(w.named[name], mine)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		left := slices.DeleteFunc(w.named[name], func(c *context.CancelFunc) bool { return c == mine })
		if len(left) == 0 {
			delete(w.named, name)
		} else {
			w.named[name] = left
		}
	}
}

func (w *waits) end(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cancel := range w.named[name] {
		(*cancel)()
	}
	return len(w.named[name])
}

// endClaims ends waits. Closing the connection does so too, but a client that
// closes it may never hear of tasks that were on their way to it.
func endClaims(c *call) error {
	var body wire.EndClaims
	if err := c.decode(&body); err != nil {
		return err
	}
	if err := checkBatch("wait_ids", len(body.WaitIDs)); err != nil {
		return err
	}
	ended := 0
	for _, id := range body.WaitIDs {
		ended += c.s.waits.end(id)
	}
	return c.answer(http.StatusOK, wire.Ended{Ended: ended})
}
