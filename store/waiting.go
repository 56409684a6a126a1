package store

import (
	"context"
	"time"
)

// WaitingClaimer is what a store has that can itself wait for tasks to become
// due, such as one that is reached over a network and can not tick. Find it with
// [As]. Whoever waits for tasks uses ClaimWait in place of Claim, Wake and a
// timer.
type WaitingClaimer interface {
	// ClaimWait is Claim for one request, except that where nothing is ready it
	// waits until something is, for at most wait, and then answers with no
	// tasks. The store may cut wait to what it allows. It is safe for concurrent
	// use; several who wait for one queue are served in the order they came.
	//
	// When ctx ends it returns the context's error at once. A task that was
	// being handed out at that moment is released, as far as the store can know
	// of it; at worst its lease runs out.
	ClaimWait(ctx context.Context, request ClaimRequest, wait time.Duration) (ClaimResult, error)
}
