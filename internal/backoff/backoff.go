// Package backoff computes how long a failed task waits.
package backoff

import (
	"math"
	"time"

	"github.com/duetime/duetime/store"
)

// Delay is the wait after attempt (from 1) has failed: Initial × Factor^(attempt-1),
// at most Max, less a random part of up to Jitter of it. rnd gives numbers in
// [0,1), such as math/rand/v2.Float64. The result is at least a millisecond and
// never more than Max, for any attempt and any Backoff, sensible or not.
func Delay(b store.Backoff, attempt int, rnd func() float64) time.Duration {
	attempt = max(attempt, 1)
	// In floating point there is no overflow that turns a long delay negative:
	// it becomes infinite, and the minimum with Max brings it back.
	full := float64(b.Initial) * math.Pow(b.Factor, float64(attempt-1))
	if math.IsNaN(full) || full > float64(b.Max) {
		full = float64(b.Max)
	}
	if b.Jitter > 0 {
		full -= full * min(b.Jitter, 1) * rnd()
	}
	d := b.Max
	if full < float64(b.Max) { // else the conversion might overflow
		d = time.Duration(full)
	}
	return max(d, time.Millisecond)
}
