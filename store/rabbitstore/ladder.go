package rabbitstore

import (
	"strconv"
	"time"
)

const (
	// unit is what waits are reckoned in.
	unit = 10 * time.Millisecond
	// The lowest rung waits 2^lowest units, since no walk needs one that is less than
	// spread.
	lowest = 2
	// allPowers: the highest rung waits 2^(allPowers-1) units, 31 days. Twice as long
	// is longer than a queue's TTL can say, which is 2^32-1 ms.
	allPowers = 29
	// halfPowers: up to there, 41 s, there is one rung more between each two.
	halfPowers = 12

	// A message is aimed to arrive this long before it is due, and as much earlier
	// for each hop of its walk: a hop costs some milliseconds, more where the disk is
	// slow, and the longest walks are what is late. Measured with 500 tasks a second
	// in quorum queues on two cores, in turns: 30 and 15 ms were no better with 100 hands
	// and twice as late with 10, who are then busy holding what is not due.
	lead       = 20 * time.Millisecond
	leadOfAHop = 10 * time.Millisecond
	// spread is how much earlier than that it may arrive: the more, the fewer rungs
	// it takes.
	spread = 40 * time.Millisecond
	// astray is how early a message has to be when it arrives to be sent up the
	// ladder again. It is more than any lead, so that clocks may differ a little.
	astray = time.Second
)

// ladder is for how many units a message waits on each rung, the lowest first: 4, 6,
// 8, 12, 16 and so on, further up powers of two alone. With powers of two alone a
// delay of up to a minute took 5 hops as a mean and up to 10; it takes 3.5 and up to
// 6, and each is work for the broker's disk.
type ladder []int64

// newLadder is one with the given number of powers of two, those that are left out
// below the lowest included.
func newLadder(powers int) ladder {
	var l ladder
	for k := lowest; k < powers; k++ {
		l = append(l, 1<<k)
		if k < min(halfPowers, powers-1) {
			l = append(l, 3<<(k-1))
		}
	}
	return l
}

// wait is for how long a message waits on a rung.
func (l ladder) wait(rung int) time.Duration { return time.Duration(l[rung]) * unit }

// reach is the longest wait of one walk: what takes longer walks again.
func (l ladder) reach() time.Duration { return 2 * l.wait(len(l)-1) }

// leads is how early a message may arrive that takes some hops: at least, and at most.
func leads(hops int) (least, most time.Duration) {
	least = lead + time.Duration(hops)*leadOfAHop
	return least, least + spread
}

// walk is which rungs a message takes, the longest first, that is due after d, so that
// it arrives as early as leads says. It is empty where d is less than that. Where d is
// more than the ladder's reach, the walk is the longest rung alone.
func (l ladder) walk(d time.Duration) []int {
	for hops := 0; ; hops++ {
		least, most := leads(hops)
		if d <= most {
			return nil
		}
		if d-least >= l.reach() {
			return []int{len(l) - 1}
		}
		if rungs := l.sum(int64((d-most+unit-1)/unit), int64((d-least)/unit)); len(rungs) <= hops {
			return rungs
		}
	}
}

// sum is rungs that together wait for least to most units. The longest that fits is
// always right: what is left is less than it, and mostly less than half of it.
func (l ladder) sum(least, most int64) (rungs []int) {
	for k := len(l) - 1; k >= 0 && least > 0; k-- {
		if l[k] <= most {
			rungs = append(rungs, k)
			least, most = least-l[k], most-l[k]
		}
	}
	return rungs
}

// A message carries its whole walk as routing keys. A rung dead-letters to an
// exchange of its own, which is bound to each lower rung by the key hop of the two
// and to the exchange of what has arrived by last. That one knows the queues, by
// arrive(queue). Rungs go by their wait in milliseconds there and in the names of
// their queues, so that messages find their way on ladders with more or fewer rungs.

func (l ladder) name(rung int) string { return strconv.FormatInt(l.wait(rung).Milliseconds(), 10) }

func (l ladder) hop(from, to int) string { return l.name(from) + ">" + l.name(to) }

func (l ladder) last(from int) string { return l.name(from) + ">" }

// route is what a message for a queue is published with that takes the given
// rungs: to the default exchange with key, and with more in its CC header.
func (t *topology) route(rungs []int, queue string) (key string, cc []any) {
	if len(rungs) == 0 {
		return t.ready(queue), nil
	}
	for i, k := range rungs {
		if i+1 < len(rungs) {
			cc = append(cc, t.ladder.hop(k, rungs[i+1]))
		} else {
			cc = append(cc, t.ladder.last(k))
		}
	}
	return t.rung(rungs[0]), append(cc, t.arrive(queue))
}
