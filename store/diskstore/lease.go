package diskstore

import (
	"container/heap"
	"encoding/binary"
	"math/rand/v2"

	"github.com/duetime/duetime/store"
)

// lease is one task that is out. All leases are in memory, and on disk, so that
// receipts outlive a restart and a task that kills its process is counted.
type lease struct {
	pos
	token      uint64
	until      int64 // milliseconds since the Unix epoch
	id         string
	worker     string
	size       uint32 // of the record
	generation uint32
	attempt    uint32
}

func newToken() uint64 { return rand.Uint64() }

func (l *lease) receipt(queue string) store.Receipt {
	return store.ReceiptParts{
		Queue: queue, ID: l.id, Generation: l.generation, Attempt: l.attempt, Token: l.token,
	}.Encode()
}

func (l *lease) encode(b []byte) []byte {
	b = append(b, 1) // version
	b = binary.LittleEndian.AppendUint64(b, l.token)
	b = binary.AppendUvarint(b, uint64(l.due))
	b = binary.AppendUvarint(b, uint64(l.until))
	b = binary.AppendUvarint(b, uint64(l.size))
	b = binary.AppendUvarint(b, uint64(l.generation))
	b = binary.AppendUvarint(b, uint64(l.attempt))
	b = appendText(b, l.id)
	return appendText(b, l.worker)
}

func (l *lease) decode(seq uint64, b []byte) bool {
	if len(b) == 0 || b[0] != 1 {
		return false
	}
	d := decoder{b: b[1:]}
	l.seq = seq
	l.token = d.fixed()
	l.due = int64(d.number())
	l.until = int64(d.number())
	l.size = uint32(d.number())
	l.generation = uint32(d.number())
	l.attempt = uint32(d.number())
	l.id = string(d.text())
	l.worker = string(d.text())
	return !d.bad && len(d.b) == 0
}

// leaseSet is a queue's leases by sequence number, by token and by deadline.
type leaseSet struct {
	bySeq   map[uint64]*lease
	byToken map[uint64]*lease
	ends    endHeap
}

func (s *leaseSet) len() int { return len(s.bySeq) }

func (s *leaseSet) add(l *lease) {
	if s.bySeq == nil {
		s.bySeq, s.byToken = make(map[uint64]*lease), make(map[uint64]*lease)
	}
	s.bySeq[l.seq], s.byToken[l.token] = l, l
	s.ends.add(l)
}

func (s *leaseSet) remove(l *lease) {
	delete(s.bySeq, l.seq)
	delete(s.byToken, l.token)
	// The heap forgets it when it comes up, or when most of the heap is such.
	if len(s.ends) > 64 && len(s.ends) > 4*len(s.bySeq) {
		s.ends = s.ends[:0]
		for _, l := range s.bySeq {
			s.ends = append(s.ends, leaseEnd{l.until, l.token})
		}
		heap.Init(&s.ends)
	}
}

func (s *leaseSet) extend(l *lease, until int64) {
	l.until = until
	s.ends.add(l)
}

// nextEnd is when the next lease runs out.
func (s *leaseSet) nextEnd() (until int64, ok bool) {
	for len(s.ends) > 0 {
		e := s.ends[0]
		if l := s.byToken[e.token]; l != nil && l.until == e.until {
			return e.until, true
		}
		heap.Pop(&s.ends)
	}
	return 0, false
}

// over is a lease whose deadline has passed, or nil.
func (s *leaseSet) over(now int64) *lease {
	if until, ok := s.nextEnd(); ok && until <= now {
		return s.byToken[s.ends[0].token]
	}
	return nil
}

type leaseEnd struct {
	until int64
	token uint64
}

type endHeap []leaseEnd

func (h *endHeap) add(l *lease)      { heap.Push(h, leaseEnd{l.until, l.token}) }
func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h endHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endHeap) Push(x any)        { *h = append(*h, x.(leaseEnd)) }
func (h *endHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// loadLeases reads the leases that were out when the store was closed, or its
// process killed. One whose record is gone or that can not be read is removed.
func (q *queue) loadLeases() error {
	lower, upper := bounds(kindLease, q.num)
	it, err := q.s.db.NewIter(iterBounds(lower, upper))
	if err != nil {
		return err
	}
	defer it.Close()
	c := q.change(soft)
	for valid := it.First(); valid; valid = it.Next() {
		l := new(lease)
		key := it.Key()
		if len(key) == 1+4+8 && l.decode(binary.BigEndian.Uint64(key[5:]), it.Value()) {
			if at, ok, err := c.finder.find(l.id); err != nil {
				return err
			} else if ok && at.pos == l.pos && !at.dead {
				q.leases.add(l)
				continue
			}
		}
		q.s.log.Warn("lease without its task removed", "queue", q.name, "id", l.id)
		c.delete(key)
	}
	if err := it.Error(); err != nil {
		return err
	}
	q.mu.Lock()
	return c.commit(nil)
}

// expire brings back tasks whose lease has run out: ready again at their old
// due time, or dead. It works in slices, between which the queue is free.
func (q *queue) expire(now int64) error {
	for {
		more, err := q.expireSlice(now)
		if err != nil || !more {
			return err
		}
	}
}

const expireSlice = 1000

func (q *queue) expireSlice(now int64) (more bool, err error) {
	q.mu.Lock()
	if q.leases.over(now) == nil {
		q.mu.Unlock()
		return false, nil
	}
	c := q.change(soft)
	for range expireSlice {
		l := q.leases.over(now)
		if l == nil {
			break
		}
		if err = c.lose(l); err == nil {
			err = c.roomy()
		}
		if err != nil {
			break
		}
	}
	more = q.leases.over(now) != nil
	return more, c.commit(err)
}

// lose ends a lease that has run out.
func (c *change) lose(l *lease) error {
	q := c.q
	rec, _, err := q.read(place{pos: l.pos}, true)
	if unreadable(err) {
		return c.setAside(l.pos, l.id, l)
	} else if err != nil {
		return err
	}
	c.endLease(l)
	rec.lost++
	if int(rec.lost) >= q.settings.MaxLost {
		rec.lastError = "lease expired"
		c.bury(l.pos, l.size, &rec)
		return nil
	}
	c.putRecord(kindTask, l.pos, &rec)
	q.add(l.pos)
	return nil
}
