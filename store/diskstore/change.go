package diskstore

import (
	"cmp"

	"github.com/cockroachdb/pebble/v2"
)

// strength of a commit; see logFS.
type strength bool

const (
	soft strength = false
	hard strength = true
)

// batchBytes is where a change is cut in two, so that neither memory nor the
// time that a queue is locked grows with the payloads of a call.
const batchBytes = 4 << 20

// change collects what an operation changes in one queue. The queue is locked
// while it is filled and applied; memory and batch change together, and the
// counters go with every batch.
type change struct {
	q        *queue
	strength strength
	b        *pebble.Batch
	applied  []*pebble.Batch // not yet waited for
	finder   finder
	touched  map[string]struct{}
	buf      []byte
}

func (q *queue) change(s strength) *change {
	return &change{q: q, strength: s, finder: finder{q: q}}
}

func (c *change) batch() *pebble.Batch {
	if c.b == nil {
		c.b = c.q.s.db.NewBatch()
	}
	return c.b
}

// touch makes sure that what this change has done to a task so far can be read
// back, before more is done to it: reads see only what was applied.
func (c *change) touch(id string) error {
	if _, again := c.touched[id]; again {
		if err := c.apply(); err != nil {
			return err
		}
	}
	if c.touched == nil {
		c.touched = make(map[string]struct{})
	}
	c.touched[id] = struct{}{}
	return nil
}

// roomy cuts the change where it has become large.
func (c *change) roomy() error {
	if c.b != nil && c.b.Len() >= batchBytes {
		return c.apply()
	}
	return nil
}

// apply makes what was collected visible; it does not wait for the log. The
// queue is locked.
func (c *change) apply() error {
	clear(c.touched)
	c.finder.reset()
	if c.b == nil || c.b.Empty() {
		return nil
	}
	b := c.b
	c.b = nil
	if err := b.Set(counterKey(c.q.num), c.q.counters(), nil); err != nil {
		return c.q.s.broken(err)
	}
	if err := c.q.s.begin(b); err != nil {
		return err
	}
	c.applied = append(c.applied, b)
	return nil
}

// wait waits until everything applied is as durable as asked. The queue is not
// locked.
func (c *change) wait() error {
	var first error
	for _, b := range c.applied {
		first = cmp.Or(first, c.q.s.written(b))
	}
	if c.strength == hard && len(c.applied) > 0 && first == nil {
		first = c.q.s.durable()
	}
	c.applied = nil
	return first
}

// commit ends an operation: it applies what was collected, unlocks the queue and
// waits. It does so after an error too, which it then returns, since memory
// already has what was collected.
func (c *change) commit(err error) error {
	applyErr := c.apply()
	c.q.mu.Unlock()
	return cmp.Or(err, applyErr, c.wait())
}

// commitPromised is commit for an answer that promises something even where
// nothing was changed: what it saw may be another call's, and not yet durable.
func (c *change) commitPromised(err error, promised bool) error {
	written := c.b != nil || len(c.applied) > 0
	if err = c.commit(err); err == nil && promised && !written && c.strength == hard {
		err = c.q.s.sync()
	}
	return err
}

// The steps that changes are made of. A batch takes copies of keys and values.

func (c *change) set(key, value []byte) { _ = c.batch().Set(key, value, nil) }
func (c *change) delete(key []byte)     { _ = c.batch().Delete(key, nil) }

func (c *change) putRecord(kind byte, p pos, rec *record) int {
	var key [posKeyLen]byte
	c.buf = rec.encode(c.buf[:0])
	c.set(appendPosKey(key[:0], kind, c.q.num, p), c.buf)
	return len(c.buf)
}

func (c *change) deleteRecord(kind byte, p pos, size uint32) {
	var key [posKeyLen]byte
	_ = c.batch().DeleteSized(appendPosKey(key[:0], kind, c.q.num, p), size, nil)
}

func (c *change) putPlace(id string, p place) {
	var key [300]byte
	var value [placeLen]byte
	c.set(appendIDKey(key[:0], c.q.num, id), appendPlace(value[:0], p))
}

func (c *change) deletePlace(id string) {
	var key [300]byte
	c.delete(appendIDKey(key[:0], c.q.num, id))
}

// schedule adds a pending task.
func (c *change) schedule(p pos, rec *record) {
	c.putRecord(kindTask, p, rec)
	c.putPlace(rec.id, place{pos: p})
	c.q.add(p)
}

// startLease hands a task out that is not pending any more.
func (c *change) startLease(l *lease) {
	c.putLease(l)
	c.q.leases.add(l)
}

func (c *change) putLease(l *lease) {
	var key [13]byte
	var value [600]byte
	c.set(appendLeaseKey(key[:0], c.q.num, l.seq), l.encode(value[:0]))
}

// endLease ends a lease; its task is then in no state until the caller puts it
// into one.
func (c *change) endLease(l *lease) {
	var key [13]byte
	c.delete(appendLeaseKey(key[:0], c.q.num, l.seq))
	c.q.leases.remove(l)
}

// bury moves a task that was leased to the dead. Its record may have changed.
func (c *change) bury(p pos, size uint32, rec *record) {
	c.deleteRecord(kindTask, p, size)
	c.addDead(p, rec)
}

func (c *change) addDead(p pos, rec *record) {
	c.putRecord(kindDead, p, rec)
	c.putPlace(rec.id, place{p, true})
	c.q.dead++
}

// remove removes a task that is not pending and not leased any more.
func (c *change) remove(id string, p pos, size uint32) {
	c.deleteRecord(kindTask, p, size)
	c.deletePlace(id)
	c.drained()
}

// rangeEvery is after how many removed tasks a range is deleted.
const rangeEvery = 50_000

// drained deletes the range of records before the first that is still there,
// now and then, so that the many single deletions in it need not be walked over
// or kept.
func (c *change) drained() {
	q := c.q
	if q.settled++; q.settled < rangeEvery {
		return
	}
	q.settled = 0
	low := q.low()
	for _, l := range q.leases.bySeq {
		if l.pos.less(low) {
			low = l.pos
		}
	}
	start, _ := bounds(kindTask, q.num)
	_ = c.batch().DeleteRange(start, appendPosKey(nil, kindTask, q.num, low), nil)
}

// setAside takes a record out of the way that can not be read, and keeps what
// there is of it. The id is what the index or the lease says, or empty.
func (c *change) setAside(p pos, id string, l *lease) error {
	q := c.q
	key := appendPosKey(nil, kindTask, q.num, p)
	value, closer, err := q.s.db.Get(key)
	if err == nil {
		c.set(appendPosKey(nil, kindBad, q.num, p), value)
		closer.Close()
	} else if err != pebble.ErrNotFound {
		return q.s.readFailed(err)
	}
	c.delete(key)
	if id != "" {
		c.deletePlace(id)
	}
	if l != nil {
		c.endLease(l)
	}
	q.s.log.Error("damaged record set aside", "queue", q.name, "id", id, "due", milli(p.due), "seq", p.seq)
	q.s.setAside.Add(1)
	return nil
}
