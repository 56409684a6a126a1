package diskstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// never is a due time that does not come.
const never = math.MaxInt64

// queue is what is kept in memory of a queue: positions, counts and the leases
// that are out. None of it grows with the number of tasks that wait.
//
// Every pending task (scheduled or ready, not leased) lies at the cursor or
// behind it, or is in early. So a claim looks at early and walks from the
// cursor on, and never over what was removed before it.
type queue struct {
	s    *Store
	name string
	num  uint32

	mu       sync.Mutex
	exists   bool // it is on disk
	settings store.Settings
	release  *release.Schedule

	nextSeq uint64
	pending int64 // tasks that are scheduled or ready
	dead    int64

	cursor  pos
	headDue int64 // no pending task at or behind the cursor is due before it
	early   earlySet

	// ahead counts the pending tasks from the cursor up to counted. Stats moves
	// counted on to now; each task is counted so once, however often it asks.
	counted pos
	ahead   int64

	leases leaseSet

	settled int // tasks removed since the drained range was last deleted

	subs map[chan struct{}]struct{}
}

// add takes in a task that became pending.
func (q *queue) add(p pos) {
	q.pending++
	if p.less(q.cursor) {
		q.early.add(p)
		q.tick()
		if q.early.len() >= earlyMax {
			first, _ := q.early.min()
			q.cursor = first
			q.headDue = first.due
			q.ahead += int64(q.early.len())
			q.early.clear()
		}
		return
	}
	if p.less(q.counted) {
		q.ahead++
	}
	if p.due < q.headDue {
		q.headDue = p.due
		q.tick()
	}
}

// drop takes out a task that was pending.
func (q *queue) drop(p pos) {
	q.pending--
	if p.less(q.cursor) {
		q.early.remove(p)
	} else if p.less(q.counted) {
		q.ahead--
	}
}

// pass moves the cursor behind p, which is not pending any more.
func (q *queue) pass(p pos) {
	q.cursor = p.after()
	if q.counted.less(q.cursor) {
		q.counted, q.ahead = q.cursor, 0
	}
}

// low is a position that no pending task lies before.
func (q *queue) low() pos {
	if first, ok := q.early.min(); ok && first.less(q.cursor) {
		return first
	}
	return q.cursor
}

// headAt is when the first pending task is due, at the earliest.
func (q *queue) headAt() int64 {
	head := q.headDue
	if first, ok := q.early.min(); ok {
		head = min(head, first.due)
	}
	return head
}

// next is store.ClaimResult.Next.
func (q *queue) next() time.Time {
	var next time.Time
	if head := q.headAt(); head != never && !q.settings.Paused {
		next = q.release.Next(time.UnixMilli(head).UTC())
	}
	if until, ok := q.leases.nextEnd(); ok {
		if end := time.UnixMilli(until).UTC(); next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next
}

// counters is the queue's line of numbers on disk, written in the batch of every
// change, so that it is always as old as the tasks are.
func (q *queue) counters() []byte {
	low := q.low()
	ahead := q.ahead
	if low.less(q.cursor) {
		ahead += int64(q.early.len())
	}
	b := make([]byte, 0, 64)
	b = append(b, 1) // version
	b = binary.AppendUvarint(b, q.nextSeq)
	b = binary.AppendUvarint(b, uint64(q.pending))
	b = binary.AppendUvarint(b, uint64(q.dead))
	for _, p := range []pos{low, q.counted} {
		b = binary.AppendUvarint(b, uint64(p.due))
		b = binary.AppendUvarint(b, p.seq)
	}
	return binary.AppendUvarint(b, uint64(ahead))
}

// load reads the counters and the leases.
func (q *queue) load() error {
	q.headDue = never
	value, closer, err := q.s.db.Get(counterKey(q.num))
	if err == pebble.ErrNotFound {
		return nil
	} else if err != nil {
		return err
	}
	d := decoder{b: value}
	if len(value) == 0 || value[0] != 1 {
		d.bad = true
	} else {
		d.b = value[1:]
	}
	q.nextSeq = d.number()
	q.pending = int64(d.number())
	q.dead = int64(d.number())
	q.cursor = pos{int64(d.number()), d.number()}
	q.counted = pos{int64(d.number()), d.number()}
	q.ahead = int64(d.number())
	bad := d.bad || len(d.b) != 0
	closer.Close()
	if bad {
		return fmt.Errorf("queue %q: counters: %w", q.name, store.ErrCorrupt)
	}
	q.headDue = q.cursor.due
	return q.loadLeases()
}

// tick wakes all who wait for the queue.
func (q *queue) tick() {
	for ch := range q.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// finder finds tasks by id. It sees what had been applied when it was first
// used, until it is reset.
type finder struct {
	q  *queue
	it *pebble.Iterator
}

func (f *finder) find(id string) (place, bool, error) {
	if f.it == nil {
		// An iterator and not Get: nearly all new ids are unknown, and Get does
		// not look at the filters of the lowest level, where most ids are.
		lower, upper := bounds(kindID, f.q.num)
		it, err := f.q.s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper, UseL6Filters: true})
		if err != nil {
			return place{}, false, f.q.s.readFailed(err)
		}
		f.it = it
	}
	var stack [300]byte
	if !f.it.SeekPrefixGE(appendIDKey(stack[:0], f.q.num, id)) {
		if err := f.it.Error(); err != nil {
			return place{}, false, f.q.s.readFailed(err)
		}
		return place{}, false, nil
	}
	p, ok := parsePlace(f.it.Value())
	if !ok {
		return place{}, false, fmt.Errorf("queue %q, id %q: index: %w", f.q.name, id, store.ErrCorrupt)
	}
	return p, true, nil
}

func (f *finder) reset() {
	if f.it != nil {
		_ = f.it.Close()
		f.it = nil
	}
}

// read reads the record at a place. A record that is damaged or not there is
// errRecord or errGone.
func (q *queue) read(at place, bodies bool) (rec record, size int, err error) {
	kind := byte(kindTask)
	if at.dead {
		kind = kindDead
	}
	var stack [posKeyLen]byte
	value, closer, err := q.s.db.Get(appendPosKey(stack[:0], kind, q.num, at.pos))
	if err == pebble.ErrNotFound {
		return rec, 0, errGone
	} else if err != nil {
		return rec, 0, q.s.readFailed(err)
	}
	defer closer.Close()
	return rec, len(value), rec.decode(value, bodies)
}

// task is a record as the contract shows it.
func (q *queue) task(rec *record, at place, now time.Time) store.Task {
	t := store.Task{
		Queue: q.name, ID: rec.id, State: store.StateScheduled,
		Payload: rec.payload, Headers: rec.headers,
		Due: milli(at.due), Created: milli(rec.created),
		Generation: int(rec.generation), Failures: int(rec.failures), Lost: int(rec.lost),
		MaxAttempts: int(rec.maxAttempts), LastError: rec.lastError,
	}
	switch l := q.leases.bySeq[at.seq]; {
	case at.dead:
		t.State = store.StateDead
	case l != nil:
		t.State, t.Worker, t.LeaseUntil = store.StateLeased, l.worker, milli(l.until)
	case at.due <= now.UnixMilli():
		t.State = store.StateReady
	}
	return t
}

func (q *queue) maxAttempts(rec *record) int {
	if rec.maxAttempts > 0 {
		return int(rec.maxAttempts)
	}
	return q.settings.MaxAttempts
}

func milli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
