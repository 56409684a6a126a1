package diskstore

import (
	"encoding/binary"
	"math"
)

// The key space. Numbers are big-endian, so that keys sort as they do.
//
//	m                        format version
//	q name                   queue number, settings
//	c queue                  counters, sequence, low-water position
//	t queue due seq          record of a scheduled, ready or leased task
//	i queue id               where the task with this id is: due, seq, dead or not
//	l queue seq              lease
//	d queue due seq          record of a dead task
//	x queue due seq          record that could not be read, set aside
//
// Records are kept in order of due time, not of id, so that a claim reads them
// one after the other, payload included, and a drained range is one range.
const (
	kindMeta    = 'm'
	kindQueue   = 'q'
	kindCounter = 'c'
	kindTask    = 't'
	kindID      = 'i'
	kindLease   = 'l'
	kindDead    = 'd'
	kindBad     = 'x'
)

// pos is a task's place in its queue's order.
type pos struct {
	due int64 // milliseconds since the Unix epoch
	seq uint64
}

func (p pos) less(q pos) bool {
	return p.due < q.due || p.due == q.due && p.seq < q.seq
}

// after is the first place behind p.
func (p pos) after() pos {
	if p.seq == math.MaxUint64 {
		return pos{p.due + 1, 0}
	}
	return pos{p.due, p.seq + 1}
}

const posKeyLen = 1 + 4 + 8 + 8

func appendPosKey(b []byte, kind byte, queue uint32, p pos) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, queue)
	b = binary.BigEndian.AppendUint64(b, uint64(p.due))
	return binary.BigEndian.AppendUint64(b, p.seq)
}

func parsePosKey(key []byte) (p pos, ok bool) {
	if len(key) != posKeyLen {
		return pos{}, false
	}
	return pos{int64(binary.BigEndian.Uint64(key[5:])), binary.BigEndian.Uint64(key[13:])}, true
}

func appendIDKey(b []byte, queue uint32, id string) []byte {
	b = append(b, kindID)
	b = binary.BigEndian.AppendUint32(b, queue)
	return append(b, id...)
}

func appendLeaseKey(b []byte, queue uint32, seq uint64) []byte {
	b = append(b, kindLease)
	b = binary.BigEndian.AppendUint32(b, queue)
	return binary.BigEndian.AppendUint64(b, seq)
}

func counterKey(queue uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindCounter}, queue)
}

func queueKey(name string) []byte { return append([]byte{kindQueue}, name...) }

// bounds are the first key of a kind in a queue and the first one behind them.
func bounds(kind byte, queue uint32) (lower, upper []byte) {
	lower = binary.BigEndian.AppendUint32([]byte{kind}, queue)
	if queue == math.MaxUint32 {
		return lower, []byte{kind + 1}
	}
	return lower, binary.BigEndian.AppendUint32([]byte{kind}, queue+1)
}

func kindBounds(kind byte) (lower, upper []byte) { return []byte{kind}, []byte{kind + 1} }

// place is what the id index says of a task.
type place struct {
	pos
	dead bool
}

const placeLen = 17

func appendPlace(b []byte, p place) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.due))
	b = binary.BigEndian.AppendUint64(b, p.seq)
	if p.dead {
		return append(b, 1)
	}
	return append(b, 0)
}

func parsePlace(b []byte) (p place, ok bool) {
	if len(b) != placeLen {
		return place{}, false
	}
	p.due = int64(binary.BigEndian.Uint64(b))
	p.seq = binary.BigEndian.Uint64(b[8:])
	p.dead = b[16] == 1
	return p, true
}
