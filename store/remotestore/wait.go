package remotestore

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

const (
	maxWait = 30 * time.Second // less than callTimeout by enough for a slow network
	// leaveTimeout is for how long a claim that is to end is waited for.
	leaveTimeout = 2 * time.Second
)

// ClaimWait implements store.WaitingClaimer by a claim that waits at the server,
// for half a minute at most.
//
// When ctx ends, the server is told to end the wait, and its answer is still read:
// tasks that were on their way are released, and with AtMostOnce, where they can
// not be, returned. That takes a moment.
func (s *Store) ClaimWait(ctx context.Context, request store.ClaimRequest, wait time.Duration) (store.ClaimResult, error) {
	if err := request.Check(); err != nil {
		return store.ClaimResult{Err: err}, nil
	}
	if err := ctx.Err(); err != nil {
		return store.ClaimResult{}, err
	}
	done, err := s.begin()
	if err != nil {
		return store.ClaimResult{}, err
	}
	defer done()
	waitID := rand.Text()
	sending, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	type outcome struct {
		result store.ClaimResult
		err    error
	}
	answered := make(chan outcome, 1)
	go func() {
		var o outcome
		o.result, o.err = s.claimWait(sending, &request, wait, waitID)
		answered <- o
	}()
	select {
	case o := <-answered:
		return o.result, o.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.ctx.Done():
		err = store.ErrClosed
	}

	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if s.sendBody(leaving, "/v1/claims/end", wire.EndClaims{WaitIDs: []string{waitID}}, new(wire.Ended)) != nil {
		return store.ClaimResult{}, err
	}
	select {
	case o := <-answered:
		if o.err != nil || len(o.result.Tasks) == 0 {
			return store.ClaimResult{}, err
		}
		if request.AtMostOnce {
			return o.result, nil
		}
		items := make([]wire.SettleItem, len(o.result.Tasks))
		for i := range items {
			items[i] = wire.SettleItem{Receipt: string(o.result.Tasks[i].Receipt), Action: store.Release.String()}
		}
		_ = s.sendBody(leaving, "/v1/batch/settle", wire.SettleBatch{Settlements: items}, new(wire.Results)) // at worst the leases run out
	case <-leaving.Done():
	}
	return store.ClaimResult{}, err
}

func (s *Store) claimWait(ctx context.Context, request *store.ClaimRequest, wait time.Duration, waitID string) (store.ClaimResult, error) {
	body := wire.ClaimBody{Max: &request.Max, Worker: store.CleanWorker(request.Worker), WaitID: waitID}
	if request.Lease != 0 || request.AtMostOnce {
		lease := wire.Duration(request.Lease.String())
		body.Lease = &lease
	}
	text := wire.Duration(min(max(wait, 0), maxWait).String())
	body.Wait = &text
	var answer wire.ClaimResult
	if err := s.sendBody(ctx, queuePath(request.Queue)+"/claim"+asBase64, body, &answer); err != nil {
		return store.ClaimResult{}, err
	}
	return answer.Store()
}

// sendBody sends a POST once, also while the store closes.
func (s *Store) sendBody(ctx context.Context, path string, body, answer any) error {
	data, err := wire.Encode(body)
	if err != nil {
		return err
	}
	return s.send(ctx, http.MethodPost, path, data, nil, answer)
}
