package redisstore

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// serverClock is what is thought of the server's clock. Scripts read the clock
// itself; this is for what can not be decided in them, and they check it.
type serverClock struct {
	offset atomic.Int64 // the server's clock less ours, in nanoseconds

	mu    sync.Mutex
	best  int64     // the largest offset seen since
	since time.Time // then
}

// offsetWindow is how long the server's clock may be thought to be ahead of what
// it is, after it was put back.
const offsetWindow = 5 * time.Second

func (c *serverClock) now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.offset.Load())).UTC()
}

// saw notes what a reply says of the server's clock. What the reply took on its
// way makes that old, so that of several replies the one that makes it latest is
// the nearest to the truth.
func (c *serverClock) saw(server time.Time) {
	now := time.Now()
	offset := int64(server.Sub(now.Round(0)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || now.Sub(c.since) > offsetWindow {
		best := c.best
		if c.since.IsZero() || best < offset {
			best = offset
		}
		c.offset.Store(best)
		c.best, c.since = math.MinInt64, now
	}
	c.best = max(c.best, offset)
	if offset > c.offset.Load() {
		c.offset.Store(offset)
	}
}

// set is for tests, whose servers show another time.
func (c *serverClock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset.Store(int64(time.Until(now)))
	c.best, c.since = c.offset.Load(), time.Now()
}

func (s *Store) now() time.Time { return s.clock.now() }

func (s *Store) sawClock(now time.Time) { s.clock.saw(now) }
