package mysqlstore

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// The states as they are stored.
const (
	waiting = 0
	leased  = 1
	dead    = 2
)

// never is an instant that does not come.
const never = math.MaxInt64

// row is a task as the table has it. Times are in milliseconds.
type row struct {
	seq                               uint64
	queueID                           uint32
	state                             int
	at, due, created                  int64
	generation, failures, lost, limit int
	token                             uint64
	size                              int
	id, worker, lastError             string

	big              bool // headers and payload are in the column large, and read only where they are needed
	loaded           bool // they were read
	headers, payload []byte
}

// scanRow reads what the word columns stands for in a statement, and the column
// large where it follows.
func scanRow(v values) *row {
	r := &row{
		seq: v.uint(0), queueID: uint32(v.int(1)), state: int(v.int(2)), at: v.int(3), due: v.int(4), created: v.int(5),
		generation: int(v.int(6)), failures: int(v.int(7)), lost: int(v.int(8)), limit: int(v.int(9)),
		token: v.uint(10), size: int(v.int(11)), id: v.string(12), worker: trimWorker(v.string(13)), lastError: v.string(14),
	}
	if r.big = v.int(15) != 0; !r.big {
		r.headers, r.payload, r.loaded = v.bytes(16), v.bytes(17), true
	} else if len(v) > 18 {
		r.unpack(v.bytes(18))
	}
	return r
}

// trimWorker takes off what the server fills the column up with.
func trimWorker(name string) string { return strings.TrimRight(name, "\x00") }

// How much of headers and payload lies in the row itself.
const (
	inlineHeaders = 1000
	inlinePayload = 2000
)

// pack is what the column large has of it.
func (r *row) pack() []byte {
	b := binary.AppendUvarint(make([]byte, 0, 10+len(r.headers)+len(r.payload)), uint64(len(r.headers)))
	return append(append(b, r.headers...), r.payload...)
}

// unpack reads the column large.
func (r *row) unpack(b []byte) {
	r.loaded = true
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return // somebody else's hand was in it
	}
	b = b[size:]
	r.headers, r.payload = b[:n:n], b[n:]
	if n == 0 {
		r.headers = nil
	}
	if len(r.payload) == 0 {
		r.payload = nil
	}
}

// pos is a place in the order in which tasks are handed out.
type pos struct {
	at  int64
	seq uint64
}

func (p pos) less(o pos) bool { return p.at < o.at || p.at == o.at && p.seq < o.seq }

func milli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// expired reports whether its lease is over.
func (r *row) expired(now time.Time) bool { return r.state == leased && r.at <= now.UnixMilli() }

// expire ends its lease as one that ran out.
func (r *row) expire(maxLost int) {
	r.lost++
	r.end(waiting)
	if r.lost >= maxLost {
		r.state, r.lastError = dead, "lease expired"
	}
}

// end ends its lease.
func (r *row) end(state int) {
	r.state, r.at, r.token, r.worker = state, r.due, 0, ""
}

// wait makes it wait until it is due.
func (r *row) wait(due int64) { r.due, r.at = due, due }

// task is what callers see of it.
func (r *row) task(queue string, now time.Time) store.Task {
	t := store.Task{
		Queue: queue, ID: r.id, State: store.StateDead, Payload: r.payload, Headers: r.headerMap(),
		Due: milli(r.due), Created: milli(r.created),
		Generation: r.generation, Failures: r.failures, Lost: r.lost, MaxAttempts: r.limit, LastError: r.lastError,
	}
	switch r.state {
	case leased:
		t.State, t.Worker, t.LeaseUntil = store.StateLeased, r.worker, milli(r.at)
	case waiting:
		t.State = store.StateScheduled
		if r.due <= now.UnixMilli() {
			t.State = store.StateReady
		}
	}
	return t
}

// headerMap is nil where the headers can not be read: only somebody else's hand
// in the table makes them so, and the task is worth more than they are.
func (r *row) headerMap() map[string]string {
	if len(r.headers) == 0 {
		return nil
	}
	var h map[string]string
	if json.Unmarshal(r.headers, &h) != nil {
		return nil
	}
	return h
}

func encodeHeaders(h map[string]string) []byte {
	if len(h) == 0 {
		return nil
	}
	b, err := json.Marshal(h)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return b
}

// insert is its tuple for the statement task_insert.
func (r *row) insert() tuple {
	lastError := []byte(nil)
	if r.lastError != "" {
		lastError = []byte(r.lastError)
	}
	if !r.isBig() {
		return tuple{r.queueID, r.state, r.at, r.due, r.created, r.generation, r.failures, r.lost, r.limit, r.size, r.id, lastError, 0, r.headers, r.payload, none}
	}
	return tuple{r.queueID, r.state, r.at, r.due, r.created, r.generation, r.failures, r.lost, r.limit, r.size, r.id, lastError, 1, none, none, r.pack()}
}

// insertNew is its tuple for the statement task_insert_new, where plain says that
// it fits.
func (r *row) insertNew() tuple {
	return tuple{r.queueID, r.state, r.at, r.due, r.created, r.limit, r.size, r.id, r.headers, r.payload}
}

func (r *row) plain() bool {
	return r.generation == 0 && r.failures == 0 && r.lost == 0 && r.lastError == "" && !r.isBig()
}

func (r *row) isBig() bool { return len(r.headers) > inlineHeaders || len(r.payload) > inlinePayload }

const none = raw("NULL")

// weight is how many bytes it takes in a packet, at most: every byte may have to
// be escaped.
func (r *row) weight() int {
	return 200 + 2*(len(r.id)+len(r.headers)+len(r.payload)+len(r.lastError))
}
