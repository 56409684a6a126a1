package clock

import "time"

// glance is how often a sleeper on Go's timers looks at the wall clock, and
// leap how far the two clocks must have come apart to call it a change: more than
// what slewing does in a glance, and than a thread may be kept from running
// between reading one clock and the other.
const (
	glance = time.Second
	leap   = 50 * time.Millisecond
)

// goTimer is a timer on time.AfterFunc, which needs no goroutine of its own. Its
// fields are under System.mu.
type goTimer struct {
	system *System
	timer  *time.Timer
	at     time.Time
	last   time.Time // when it was set, by the monotonic clock
	wall   time.Time // and by the wall clock
}

func newGoTimer(s *System) *goTimer { return &goTimer{system: s} }

func (g *goTimer) set(at time.Time) {
	g.at = at
	g.last = time.Now()
	g.wall = g.last.Round(0)
	wait := at.Sub(g.wall)
	if !g.system.virtual {
		wait = min(wait, glance)
	}
	wait = max(wait, 0)
	if g.timer == nil {
		g.timer = time.AfterFunc(wait, g.fire)
	} else {
		g.timer.Reset(wait)
	}
}

func (g *goTimer) fire() {
	g.system.mu.Lock()
	last, wall := g.last, g.wall
	g.system.mu.Unlock()
	now := time.Now()
	apart := now.Round(0).Sub(wall) - now.Sub(last)
	g.system.fired(g, apart > leap || apart < -leap)
}

func (g *goTimer) close() {
	if g.timer != nil {
		g.timer.Stop()
	}
}
