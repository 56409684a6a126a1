package server

import (
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

// leaseTable counts the leases that run out: of those that this server handed
// out, the ones that nobody settled before their deadline. It holds an entry for
// each lease that is out, up to a limit, past which leases are not counted.
type leaseTable struct {
	mu   sync.Mutex
	byID map[store.Receipt]leaseEntry
	ends map[int64]map[store.Receipt]struct{} // by second, so that a sweep touches only what ended
	seen int64                                // all seconds before it are swept
}

type leaseEntry struct {
	second int64
	queue  string
}

const maxLeaseTable = 200_000

func newLeaseTable() *leaseTable {
	return &leaseTable{byID: map[store.Receipt]leaseEntry{}, ends: map[int64]map[store.Receipt]struct{}{}}
}

// endSecond is the first whole second by which the lease is over.
func endSecond(until time.Time) int64 { return until.Add(time.Second - 1).Unix() }

func (l *leaseTable) add(receipt store.Receipt, queue string, until time.Time) {
	if len(l.byID) >= maxLeaseTable {
		return
	}
	second := max(endSecond(until), l.seen)
	l.byID[receipt] = leaseEntry{second, queue}
	set := l.ends[second]
	if set == nil {
		set = map[store.Receipt]struct{}{}
		l.ends[second] = set
	}
	set[receipt] = struct{}{}
}

func (l *leaseTable) remove(receipt store.Receipt) (leaseEntry, bool) {
	e, ok := l.byID[receipt]
	if !ok {
		return e, false
	}
	delete(l.byID, receipt)
	set := l.ends[e.second]
	delete(set, receipt)
	if len(set) == 0 {
		delete(l.ends, e.second)
	}
	return e, true
}

func (l *leaseTable) out(leases []store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range leases {
		if leases[i].Receipt != "" {
			l.add(leases[i].Receipt, leases[i].Queue, leases[i].LeaseUntil)
		}
	}
}

// settled notes what became of leases. A stale receipt is forgotten only by the
// sweep: it says nothing of why.
func (l *leaseTable) settled(settlements []store.Settlement, results []store.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range results {
		switch results[i].Outcome {
		case store.Stale, store.Refused:
		case store.Extended:
			if e, ok := l.remove(settlements[i].Receipt); ok {
				l.add(settlements[i].Receipt, e.queue, results[i].At)
			}
		default:
			l.remove(settlements[i].Receipt)
		}
	}
}

// sweep returns how many leases of each queue have run out since the last sweep.
func (l *leaseTable) sweep(now time.Time) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var expired map[string]int
	end := now.Unix()
	for second, set := range l.ends {
		if second > end {
			continue
		}
		for receipt := range set {
			if expired == nil {
				expired = map[string]int{}
			}
			expired[l.byID[receipt].queue]++
			delete(l.byID, receipt)
		}
		delete(l.ends, second)
	}
	l.seen = max(l.seen, end)
	return expired
}
