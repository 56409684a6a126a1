package mysqlstore

import (
	"slices"
	"strconv"
)

// workerBytes is the length of the column worker.
const workerBytes = 32

// edit is a row that a transaction has locked, or makes, and what is to become of
// it.
type edit struct {
	row
	was   row  // as it is stored
	fresh bool // it is not stored yet
	gone  bool // it is to be deleted
	done  bool // its new version is written
}

func locked(r *row) *edit { return &edit{row: *r, was: *r} }

// count is a change of a queue's counters.
type count struct {
	waiting, ahead, leased, dead int64
	early, earlyLease            int64
}

func newCount() *count { return &count{early: never, earlyLease: never} }

func (c *count) add(r *row, counted, n int64) {
	switch r.state {
	case waiting:
		c.waiting += n
		if r.at < counted {
			c.ahead += n
		}
	case leased:
		c.leased += n
	case dead:
		c.dead += n
	}
}

// take counts what an edit changes.
func (c *count) take(e *edit, counted int64) {
	if !e.fresh {
		c.add(&e.was, counted, -1)
	}
	if e.gone {
		return
	}
	c.add(&e.row, counted, 1)
	if e.fresh || e.state != e.was.state || e.at != e.was.at {
		switch e.state {
		case waiting:
			c.early = min(c.early, e.at)
		case leased:
			c.earlyLease = min(c.earlyLease, e.at)
		}
	}
}

func (c *count) zero() bool {
	return c.waiting == 0 && c.ahead == 0 && c.leased == 0 && c.dead == 0 && c.early == never && c.earlyLease == never
}

// write adds the statements that make edits true, but for fresh rows, which are
// inserted with insert. Rows with the same changes share a statement.
func (l *link) write(edits []*edit) {
	var deletes []uint64
	updates := make(map[string][]uint64)
	var order []string
	for _, e := range edits {
		switch {
		case e.fresh || e.done:
			continue
		case e.gone:
			deletes = append(deletes, e.seq)
		default:
			set := string(e.set())
			if set == "" {
				continue
			}
			if updates[set] == nil {
				order = append(order, set)
			}
			updates[set] = append(updates[set], e.seq)
		}
		e.done = true
	}
	if len(deletes) > 0 {
		slices.Sort(deletes)
		l.add("task_delete", whereSeq(deletes))
	}
	for _, set := range order {
		seqs := updates[set]
		slices.Sort(seqs)
		l.add("task_update", raw(set), whereSeq(seqs))
	}
}

// set is what an UPDATE must set.
func (e *edit) set() []byte {
	var b []byte
	name := func(column string) {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, column...), " = "...)
	}
	number := func(column string, now, before int64) {
		if now != before {
			name(column)
			b = strconv.AppendInt(b, now, 10)
		}
	}
	number("state", int64(e.state), int64(e.was.state))
	number("due", e.due, e.was.due)
	switch {
	case e.at == e.was.at:
	case e.at == e.due: // the same text for many rows; due was set before it
		name("at")
		b = append(b, "due"...)
	default:
		number("at", e.at, e.was.at)
	}
	number("failures", int64(e.failures), int64(e.was.failures))
	number("lost", int64(e.lost), int64(e.was.lost))
	if e.token != e.was.token {
		name("token")
		b = strconv.AppendUint(b, e.token, 10)
	}
	if e.worker != e.was.worker {
		short, long := e.worker, none
		if len(short) > workerBytes {
			short, long = "", raw(appendString(nil, e.worker))
		}
		name("worker")
		b = appendString(b, short)
		if long != none || len(e.was.worker) > workerBytes {
			name("worker_long")
			b = append(b, long...)
		}
	}
	if e.lastError != e.was.lastError {
		name("last_error")
		b = appendString(b, e.lastError)
	}
	return b
}

// insert adds fresh rows; the order of the list is the order of scheduling.
func (l *link) insert(rows []*row) {
	tuples := make([]tuple, len(rows))
	if !slices.ContainsFunc(rows, func(r *row) bool { return !r.plain() }) {
		for i, r := range rows {
			tuples[i] = r.insertNew()
		}
		l.add("task_insert_new", tuples)
		return
	}
	for i, r := range rows {
		tuples[i] = r.insert()
	}
	l.add("task_insert", tuples)
}

// tally adds the counters of queues, in the order of the queues' numbers, as all
// transactions do.
func (l *link) tally(counts map[uint32]*count) {
	ids := make([]uint32, 0, len(counts))
	for id, c := range counts {
		if !c.zero() {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	shard := l.s.nextShard.Add(1) % shards
	tuples := make([]tuple, len(ids))
	for i, id := range ids {
		c := counts[id]
		tuples[i] = tuple{id, shard, c.waiting, c.ahead, c.leased, c.dead, c.early, c.earlyLease}
	}
	l.add("tally_add", tuples)
}

// countEdits counts edits by queue.
func countEdits(edits []*edit, queues map[uint32]*view) map[uint32]*count {
	counts := make(map[uint32]*count)
	for _, e := range edits {
		c := counts[e.queueID]
		if c == nil {
			c = newCount()
			counts[e.queueID] = c
		}
		c.take(e, queues[e.queueID].counted)
	}
	return counts
}

// told wakes those who wait for tasks that became claimable earlier than they
// know.
func (s *Store) told(counts map[uint32]*count, queues map[uint32]*view) {
	for id, c := range counts {
		if at := min(c.early, c.earlyLease); at != never {
			queues[id].queue.sooner(at)
		}
	}
}
