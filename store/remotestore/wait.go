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
	// How long to wait before the end of a claim is asked for again.
	firstRepeat, longestRepeat = 2 * time.Millisecond, 100 * time.Millisecond
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
	// The claim may still be on its way, on another connection, and begin its wait
	// only after this call found none to end: until there is an answer, again.
	for pause := firstRepeat; ; pause = min(2*pause, longestRepeat) {
		var ended wire.Ended
		if s.sendBody(leaving, "/v1/claims/end", wire.EndClaims{WaitIDs: []string{waitID}}, &ended) != nil {
			return store.ClaimResult{}, err
		}
		var again <-chan time.Time
		if ended.Ended == 0 {
			again = time.After(pause)
		}
		select {
		case o := <-answered:
			return s.left(leaving, &request, o.result, o.err, err)
		case <-leaving.Done():
			return store.ClaimResult{}, err
		case <-again:
		}
	}
}

// left deals with what a claim brought that was ended by its caller, for the
// reason why.
func (s *Store) left(ctx context.Context, request *store.ClaimRequest, result store.ClaimResult, err, why error) (store.ClaimResult, error) {
	if err != nil || len(result.Tasks) == 0 {
		return store.ClaimResult{}, why
	}
	if request.AtMostOnce {
		return result, nil
	}
	items := make([]wire.SettleItem, len(result.Tasks))
	for i := range items {
		items[i] = wire.SettleItem{Receipt: string(result.Tasks[i].Receipt), Action: store.Release.String()}
	}
	_ = s.sendBody(ctx, "/v1/batch/settle", wire.SettleBatch{Settlements: items}, new(wire.Results)) // at worst the leases run out
	return store.ClaimResult{}, why
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
