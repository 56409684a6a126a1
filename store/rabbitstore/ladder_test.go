package rabbitstore

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A walk ends between lead and hold before it is due, takes each rung once at
// most, the longest first, and as few as can be.
func TestWalk(t *testing.T) {
	l := ladder(allRungs)
	delays := []time.Duration{0, 1, unit, lead, hold, hold + 1, 91 * time.Millisecond, time.Second, time.Minute, 24 * time.Hour, l.reach(), 10 * 365 * 24 * time.Hour, 1<<63 - 1}
	for range 100_000 {
		delays = append(delays, rand.N(time.Duration(1)<<rand.IntN(55)+1))
	}
	for _, d := range delays {
		rungs := l.walk(d)
		if !slices.IsSortedFunc(rungs, func(a, b int) int { return b - a }) || len(slices.Compact(slices.Clone(rungs))) != len(rungs) {
			t.Fatalf("%v: rungs %v are not in order", d, rungs)
		}
		var sum time.Duration
		for _, k := range rungs {
			if k < 0 || k >= allRungs {
				t.Fatalf("%v: rungs %v", d, rungs)
			}
			sum += l.wait(k)
		}
		switch early := d - sum; {
		case d <= hold:
			if len(rungs) > 0 {
				t.Fatalf("%v: rungs %v, want none", d, rungs)
			}
		case d-lead >= l.reach():
			if len(rungs) != 1 || rungs[0] != allRungs-1 {
				t.Fatalf("%v: rungs %v, want the longest", d, rungs)
			}
		case early < lead || early > hold:
			t.Fatalf("%v: rungs %v bring it %v early", d, rungs, early)
		case rungs[len(rungs)-1] < 2:
			t.Fatalf("%v: rungs %v have one that is not needed", d, rungs)
		}
	}
}

func TestRungsAreWithinTheLimitOfTTL(t *testing.T) {
	l := ladder(allRungs)
	if top := l.wait(allRungs - 1).Milliseconds(); top > 1<<32-1 || 2*top <= 1<<32-1 {
		t.Errorf("the highest rung waits %d ms", top)
	}
	n := names{prefix: "0123456789012345678901234567890123456789"}
	key, cc := n.route(l.walk(l.reach()-time.Second), string(make([]byte, 100)))
	for _, k := range append(cc, key) {
		if len(k.(string)) > 255 {
			t.Errorf("the routing key %q is %d bytes long", k, len(k.(string)))
		}
	}
}
