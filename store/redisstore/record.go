package redisstore

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// The flags of a record; see lua/prelude.lua, which has its layout.
const (
	hasCounters = 1 << iota
	hasHeaders
	hasError
	replaces // this and the next of a request only
	delayed
)

// recordHead is the length of what every record has.
const recordHead = 1 + 7 + 6 + 6

var errRecord = errors.New("the record can not be read")

// record is what a record says, and where its task stands in an order.
type record struct {
	seq  uint64
	task store.Task // without Queue, ID and State
}

// readRecord reads a record. Without payloads the rest may be missing, and is not
// looked at.
func readRecord(b string, payloads bool) (record, error) {
	var r record
	if len(b) < recordHead || b[0] > hasCounters|hasHeaders|hasError {
		return r, errRecord
	}
	flags := b[0]
	r.seq = bigEndian(b[1:8])
	r.task.Created = fromMilli(int64(bigEndian(b[8:14])))
	r.task.Due = fromMilli(int64(bigEndian(b[14:20])))
	b = b[recordHead:]
	if flags&hasCounters != 0 {
		if len(b) < 16 {
			return r, errRecord
		}
		r.task.Generation = int(bigEndian(b[0:4]))
		r.task.Failures = int(bigEndian(b[4:8]))
		r.task.Lost = int(bigEndian(b[8:12]))
		r.task.MaxAttempts = int(bigEndian(b[12:16]))
		b = b[16:]
	}
	if flags&hasError != 0 {
		if len(b) < 2 {
			return r, errRecord
		}
		n := int(bigEndian(b[:2]))
		if len(b) < 2+n {
			return r, errRecord
		}
		r.task.LastError = b[2 : 2+n]
		b = b[2+n:]
	}
	if !payloads {
		return r, nil
	}
	if flags&hasHeaders != 0 {
		var err error
		if r.task.Headers, b, err = readHeaders(b); err != nil {
			return r, err
		}
	}
	if b != "" {
		r.task.Payload = []byte(b)
	}
	return r, nil
}

func bigEndian(s string) uint64 {
	var n uint64
	for i := range len(s) {
		n = n<<8 | uint64(s[i])
	}
	return n
}

func readHeaders(s string) (map[string]string, string, error) {
	ok := true
	number := func() int {
		n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(s)) {
			ok = false
			return 0
		}
		s = s[size:]
		return int(n)
	}
	text := func() string {
		n := number()
		if !ok || n > len(s) {
			ok = false
			return ""
		}
		t := s[:n]
		s = s[n:]
		return t
	}
	n := number()
	headers := make(map[string]string, n)
	for range n {
		name := text()
		headers[name] = text()
		if !ok {
			return nil, "", errRecord
		}
	}
	return headers, s, nil
}

// appendRest makes the part of a record that scripts do not look into.
func appendRest(b []byte, headers map[string]string, payload []byte) []byte {
	if len(headers) > 0 {
		b = binary.AppendUvarint(b, uint64(len(headers)))
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			b = binary.AppendUvarint(b, uint64(len(name)))
			b = append(b, name...)
			b = binary.AppendUvarint(b, uint64(len(headers[name])))
			b = append(b, headers[name]...)
		}
	}
	return append(b, payload...)
}

// lease is what the server keeps of a lease.
type lease struct {
	token  uint64
	until  time.Time
	seq    uint64
	due    time.Time
	worker string
}

const leaseHead = 8 + 6 + 7 + 6

func readLease(b string) (lease, error) {
	if len(b) < leaseHead {
		return lease{}, errRecord
	}
	return lease{
		token:  bigEndian(b[:8]),
		until:  fromMilli(int64(bigEndian(b[8:14]))),
		seq:    bigEndian(b[14:21]),
		due:    fromMilli(int64(bigEndian(b[21:27]))),
		worker: b[27:],
	}, nil
}

// readTask makes a task of what find in prelude.lua found: a state's letter, a
// record, and a lease where it is leased.
func readTask(queue, id, state, text, leaseText string, now time.Time, payloads bool) (store.Task, error) {
	r, err := readRecord(text, payloads)
	if err != nil {
		return store.Task{}, err
	}
	t := r.task
	t.Queue, t.ID = queue, id
	switch state {
	case "l":
		l, err := readLease(leaseText)
		if err != nil {
			return store.Task{}, err
		}
		t.State, t.LeaseUntil, t.Worker = store.StateLeased, l.until, l.worker
	case "d":
		t.State = store.StateDead
	default:
		t.State = store.StateScheduled
		if !t.Due.After(now) {
			t.State = store.StateReady
		}
	}
	return t, nil
}
