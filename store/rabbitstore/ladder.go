package rabbitstore

import (
	"strconv"
	"time"
)

const (
	// unit is how long a message waits on the lowest rung.
	unit = 10 * time.Millisecond
	// allRungs is how many there are. The next one would wait for longer than a
	// queue's TTL can say, which is 2^32-1 ms.
	allRungs = 29

	// lead is by how much a message is aimed to arrive before it is due, since
	// each hop costs a millisecond or two, and many at once cost more: with 20 ms one
	// task in a hundred was over 70 ms late at 500 a second, on two cores.
	lead = 50 * time.Millisecond
	// hold is how early a message may arrive at most: for so long the process
	// that received it keeps it until the very millisecond.
	hold = 90 * time.Millisecond
	// astray is how early a message has to be when it arrives to be sent up the
	// ladder again. It is more than hold, so that clocks may differ a little.
	astray = time.Second
)

// ladder is a number of rungs; rung k makes a message wait unit × 2^k.
type ladder int

// wait is for how long a message waits on a rung.
func (ladder) wait(rung int) time.Duration { return unit << rung }

// reach is the longest wait of one walk: what takes longer walks again.
func (l ladder) reach() time.Duration { return unit << l }

// walk is which rungs a message takes, the longest first, that is due after d.
// Together they wait d less something between lead and hold, and there is no sum
// in that range with fewer rungs. It is empty where d is not more than hold.
// Where d is more than the ladder's reach, the walk is the longest rung alone.
func (l ladder) walk(d time.Duration) []int {
	if d <= hold {
		return nil
	}
	if d-lead >= l.reach() {
		return []int{int(l) - 1}
	}
	n := int64((d - lead) / unit)
	lowest := int64((d - hold + unit - 1) / unit)
	for n&(n-1) >= lowest { // without its last one
		n &= n - 1
	}
	var rungs []int
	for k := int(l) - 1; k >= 0; k-- {
		if n>>k&1 == 1 {
			rungs = append(rungs, k)
		}
	}
	return rungs
}

// A message carries its whole walk as routing keys. Rung k dead-letters to an
// exchange of its own, which is bound to each lower rung j by the key hop(k, j)
// and to the exchange of what has arrived by last(k). That one knows the queues,
// by arrive(queue).

func hop(from, to int) string { return strconv.Itoa(from) + ">" + strconv.Itoa(to) }

func last(from int) string { return strconv.Itoa(from) + ">" }

// route is what a message for a queue is published with that takes the given
// rungs: to the default exchange with key, and with more in its CC header.
func (n names) route(rungs []int, queue string) (key string, cc []any) {
	if len(rungs) == 0 {
		return n.ready(queue), nil
	}
	for i, k := range rungs {
		if i+1 < len(rungs) {
			cc = append(cc, hop(k, rungs[i+1]))
		} else {
			cc = append(cc, last(k))
		}
	}
	return n.rung(rungs[0]), append(cc, n.arrive(queue))
}
