package rabbitstore

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A walk ends as early as leads says, takes each rung once at most, the longest first,
// and no more than it has time for.
func TestWalk(t *testing.T) {
	l := newLadder(allPowers)
	delays := []time.Duration{0, 1, unit, lead, lead + spread, lead + spread + 1, 91 * time.Millisecond, time.Second, time.Minute, 24 * time.Hour, l.reach(), 10 * 365 * 24 * time.Hour, 1<<63 - 1}
	for range 100_000 {
		delays = append(delays, rand.N(time.Duration(1)<<rand.IntN(55)+1))
	}
	longest := 0
	for _, d := range delays {
		rungs := l.walk(d)
		if !slices.IsSortedFunc(rungs, func(a, b int) int { return b - a }) || len(slices.Compact(slices.Clone(rungs))) != len(rungs) {
			t.Fatalf("%v: rungs %v are not in order", d, rungs)
		}
		var sum time.Duration
		for _, k := range rungs {
			if k < 0 || k >= len(l) {
				t.Fatalf("%v: rungs %v", d, rungs)
			}
			sum += l.wait(k)
		}
		least, most := leads(len(rungs))
		_, none := leads(1)
		switch early := d - sum; {
		case d <= none:
			if len(rungs) > 0 {
				t.Fatalf("%v: rungs %v, want none", d, rungs)
			}
		case len(rungs) == 1 && rungs[0] == len(l)-1 && early > most:
			if d < l.reach() {
				t.Fatalf("%v: rungs %v, and it is within reach", d, rungs)
			}
		case early < least || early > most+4*leadOfAHop:
			t.Fatalf("%v: rungs %v bring it %v early, want %v to %v", d, rungs, early, least, most)
		}
		if d <= time.Minute {
			longest = max(longest, len(rungs))
		}
	}
	if longest < 3 || longest > 6 {
		t.Errorf("up to %d hops for a minute", longest)
	}
}

func TestRungsAreWithinTheLimitOfTTL(t *testing.T) {
	l := newLadder(allPowers)
	if !slices.IsSorted(l) || l.wait(0) > spread {
		t.Errorf("rungs %v", l)
	}
	if top := l.wait(len(l) - 1).Milliseconds(); top > 1<<32-1 || 2*top <= 1<<32-1 {
		t.Errorf("the highest rung waits %d ms", top)
	}
	n := &topology{names: names{prefix: "0123456789012345678901234567890123456789"}, ladder: l}
	key, cc := n.route(l.walk(l.reach()-time.Second), string(make([]byte, 100)))
	for _, k := range append(cc, key) {
		if len(k.(string)) > 255 {
			t.Errorf("the routing key %q is %d bytes long", k, len(k.(string)))
		}
	}
}
