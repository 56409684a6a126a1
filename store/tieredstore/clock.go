package tieredstore

import (
	"sync"
	"time"
)

const (
	// estimateFor is for how long the best estimate is kept: an answer that took long
	// says less about the clock than one that came at once. When nothing was heard for
	// longer the clock may have been set.
	estimateFor = 5 * time.Second
)

// clock is what the cold store's clock is thought to show. Its answers arrive a
// little after they were made, so that the estimate lags, which is the better side
// to be wrong on. Between answers time passes by this machine's monotonic clock: what
// its wall shows does not matter.
type clock struct {
	fixed func() time.Time // a clock of the tests; nil: estimate

	mu   sync.Mutex
	at   time.Time // what it showed
	seen time.Time // when, here
}

func (c *clock) now() time.Time {
	if c.fixed != nil {
		return c.fixed()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.estimate()
}

func (c *clock) estimate() time.Time { return c.at.Add(time.Since(c.seen)) }

// old reports whether nothing was heard of the clock for long.
func (c *clock) old() bool {
	if c.fixed != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.seen) > estimateFor
}

// saw takes an answer in.
func (c *clock) saw(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.After(c.estimate()) || time.Since(c.seen) > estimateFor {
		c.at, c.seen = now, time.Now()
	}
}

// correct takes an answer in that shows that the estimate is ahead.
func (c *clock) correct(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.estimate()) {
		c.at, c.seen = now, time.Now()
	}
}
