package mysqlstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// sliceRows and sliceBytes bound a transaction that stores tasks, so that it
	// holds its locks for milliseconds. keysPerStatement bounds lists of ids: MySQL
	// turns to scanning where ranges take too much memory, MariaDB rewrites a
	// list of a thousand into a join.
	sliceRows        = 1000
	sliceBytes       = 4 << 20
	keysPerStatement = 500
)

// wish is a task that a caller wants stored, whole.
type wish struct {
	index    int // in the caller's list
	queue    string
	row      row
	delay    time.Duration // added to the clock, where due was not given
	dueGiven time.Time
	replace  bool
	imported bool // stored as it is
}

func refused(err error) store.Result { return store.Result{Outcome: store.Refused, Err: err} }

// Schedule implements store.Store. Large batches are stored in slices of up to a
// thousand tasks, each a transaction.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if err := s.enter(ctx, len(tasks)); err != nil {
		return nil, err
	}
	defer s.leave()
	results := make([]store.Result, len(tasks))
	return results, s.store(ctx, s.wishes(tasks, results), results)
}

// wishes checks tasks; for those that are refused results say so. The clock that
// delays are added to is not known yet: they are checked by the machine's own, and
// again when it is.
func (s *Store) wishes(tasks []store.NewTask, results []store.Result) []*wish {
	wishes := make([]*wish, 0, len(tasks))
	now := s.guess()
	for i := range tasks {
		n := &tasks[i]
		if _, err := n.Check(now, s.opts.MaxPayload); err != nil {
			results[i] = refused(err)
			continue
		}
		wishes = append(wishes, &wish{
			index: i, queue: n.Queue, delay: n.Delay, dueGiven: n.Due, replace: n.Conflict == store.ConflictReplace,
			row: row{state: waiting, limit: n.MaxAttempts, size: len(n.Payload), id: n.ID, headers: encodeHeaders(n.Headers), payload: n.Payload},
		})
	}
	return wishes
}

// Import implements store.Importer.
func (s *Store) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	if err := s.enter(ctx, len(tasks)); err != nil {
		return nil, err
	}
	defer s.leave()
	results := make([]store.Result, len(tasks))
	wishes := make([]*wish, 0, len(tasks))
	for i := range tasks {
		t, err := tasks[i].CheckImport(s.opts.MaxPayload)
		if err != nil {
			results[i] = refused(err)
			continue
		}
		w := &wish{index: i, queue: t.Queue, imported: true, row: row{
			state: waiting, at: t.Due.UnixMilli(), due: t.Due.UnixMilli(), created: t.Created.UnixMilli(),
			generation: t.Generation, failures: t.Failures, lost: t.Lost, limit: t.MaxAttempts, lastError: t.LastError,
			size: len(t.Payload), id: t.ID, headers: encodeHeaders(t.Headers), payload: t.Payload,
		}}
		if t.State == store.StateDead {
			w.row.state = dead
		}
		wishes = append(wishes, w)
	}
	return results, s.store(ctx, wishes, results)
}

// store stores wishes slice by slice.
func (s *Store) store(ctx context.Context, wishes []*wish, results []store.Result) error {
	names := make(map[string]bool)
	for _, w := range wishes {
		names[w.queue] = true
	}
	found, err := s.ensure(ctx, names)
	if err != nil {
		return err
	}
	for _, w := range wishes {
		w.row.queueID = found[w.queue].id
	}
	for len(wishes) > 0 {
		n, bytes := 0, 0
		for n < len(wishes) && n < sliceRows && (n == 0 || bytes+wishes[n].row.weight() <= s.sliceBytes) {
			bytes += wishes[n].row.weight()
			n++
		}
		slice := wishes[:n]
		if err := s.storeSlice(ctx, slice, results); isFull(err) {
			for _, w := range slice {
				results[w.index] = refused(s.explain(err))
			}
		} else if err != nil {
			return err
		}
		wishes = wishes[n:]
	}
	return nil
}

func (s *Store) storeSlice(ctx context.Context, slice []*wish, results []store.Result) error {
	// New tasks, the rule, are inserted without looking whether they are there.
	careful := false
	seen := make(map[taskKey]bool, len(slice))
	for _, w := range slice {
		k := taskKey{w.row.queueID, w.row.id}
		careful = careful || w.replace || seen[k]
		seen[k] = true
	}
	return s.with(ctx, func(ctx context.Context, l *link) error {
		if !careful {
			err := s.insertNew(ctx, l, slice, results)
			if !serverError(err, errDuplicate) {
				return err
			}
			careful = true
			if err := l.undo(ctx); err != nil {
				return err
			}
			l.ending = false
		}
		err := s.insertCarefully(ctx, l, slice, results)
		if serverError(err, errDuplicate) {
			return errRepeat // it came between our look and our insert
		}
		return err
	})
}

type taskKey struct {
	queueID uint32
	id      string
}

func queueIDs[T any](items []T, id func(T) uint32) []uint32 {
	var ids []uint32
	seen := make(map[uint32]bool)
	for _, item := range items {
		if n := id(item); !seen[n] {
			seen[n] = true
			ids = append(ids, n)
		}
	}
	slices.Sort(ids)
	return ids
}

// date gives a wish its times.
func (w *wish) date(now time.Time) error {
	if w.imported {
		return nil
	}
	due, err := store.DueTime(now, w.dueGiven, w.delay)
	if err != nil {
		return err
	}
	w.row.wait(due.UnixMilli())
	w.row.created = store.CeilMilli(now).UnixMilli()
	return nil
}

func (w *wish) result(o store.Outcome) store.Result {
	return store.Result{Outcome: o, Due: milli(w.row.due), At: milli(w.row.created)}
}

func (s *Store) insertNew(ctx context.Context, l *link, slice []*wish, results []store.Result) error {
	views := make(map[uint32]*view)
	l.begin()
	l.add("queue_share", queueIDs(slice, func(w *wish) uint32 { return w.row.queueID }))
	l.clock()
	if err := l.send(ctx, s.views(views), l.tell); err != nil {
		return err
	}
	counts := make(map[uint32]*count)
	rows := make([]*row, 0, len(slice))
	for _, w := range slice {
		if err := w.date(l.now); err != nil {
			results[w.index] = refused(err)
			continue
		}
		id := w.row.queueID
		if counts[id] == nil {
			counts[id] = newCount()
		}
		counts[id].take(&edit{row: w.row, fresh: true}, views[id].counted)
		rows = append(rows, &w.row)
		results[w.index] = w.result(store.Created)
	}
	if len(rows) == 0 {
		return l.undo(ctx)
	}
	l.insert(rows)
	l.tally(counts)
	l.commit()
	if err := l.send(ctx); err != nil {
		return err
	}
	s.told(counts, views)
	return nil
}

// insertCarefully looks first what is there, and plays the slice through in its
// order.
func (s *Store) insertCarefully(ctx context.Context, l *link, slice []*wish, results []store.Result) error {
	views := make(map[uint32]*view)
	keys := make([]taskKey, len(slice))
	for i, w := range slice {
		keys[i] = taskKey{w.row.queueID, w.row.id}
	}
	there, err := l.lock(ctx, keys, views)
	if err != nil {
		return err
	}
	now := l.now
	var edits []*edit                 // of what was there, and fresh ones
	latest := make(map[taskKey]*edit) // what a key stands for now; gone ones too
	for _, e := range there {
		if e.expired(now) {
			e.expire(views[e.queueID].MaxLost)
		}
		latest[taskKey{e.queueID, e.id}] = e
		edits = append(edits, e)
	}
	shown := make(map[*edit][]int)
	var order []*edit
	for _, w := range slice {
		if err := w.date(now); err != nil {
			results[w.index] = refused(err)
			continue
		}
		k := taskKey{w.row.queueID, w.row.id}
		old := latest[k]
		outcome := store.Created
		if old != nil && !old.gone {
			switch {
			case w.imported, old.state != dead && !w.replace:
				shown[old] = append(shown[old], w.index)
				// What it is at this moment: a later item may replace it.
				t := old.task(views[old.queueID].name, now)
				t.Payload = bytes.Clone(t.Payload)
				results[w.index] = store.Result{Outcome: store.Exists, Task: &t}
				continue
			case old.state != dead:
				outcome = store.Replaced
				w.row.generation = old.generation + 1
			}
			old.gone = true
		}
		e := &edit{row: w.row, fresh: true}
		latest[k] = e
		order = append(order, e)
		results[w.index] = w.result(outcome)
	}

	// Replaced ones in the batch itself are not stored at all.
	var fresh []*row
	for _, e := range order {
		if !e.gone {
			edits = append(edits, e)
			fresh = append(fresh, &e.row)
		}
	}
	counts := countEdits(edits, views)
	l.write(edits)
	if len(fresh) > 0 {
		l.insert(fresh)
	}
	var answers []func(values) error
	bySeq := make(map[uint64][]int)
	var seqs []uint64
	for e, indexes := range shown {
		if e.loaded || e.fresh {
			continue // it has its payload
		}
		seqs = append(seqs, e.seq)
		bySeq[e.seq] = indexes
	}
	if len(seqs) > 0 {
		slices.Sort(seqs)
		// Before they are changed, in the packet as well.
		change := slices.Clone(l.text)
		l.text = l.text[:0]
		l.add("payloads", seqs)
		if len(change) > 0 {
			l.sql(string(change))
		}
		answers = append(answers, func(v values) error {
			for _, i := range bySeq[v.uint(0)] {
				var r row // each caller's own
				r.unpack(v.bytes(1))
				results[i].Task.Headers, results[i].Task.Payload = r.headerMap(), r.payload
			}
			return nil
		})
	}
	l.tally(counts)
	l.commit()
	if err := l.send(ctx, answers...); err != nil {
		return err
	}
	s.told(counts, views)
	return nil
}

// lock begins a transaction, and locks the tasks of the given keys that exist.
func (l *link) lock(ctx context.Context, keys []taskKey, views map[uint32]*view) ([]*edit, error) {
	ids := queueIDs(keys, func(k taskKey) uint32 { return k.queueID })
	l.begin()
	l.add("queue_share", ids)
	l.clock()
	var edits []*edit
	answers := []func(values) error{l.s.views(views), l.tell}
	answers = append(answers, l.byID("task_lock", keys, func(r *row) { edits = append(edits, locked(r)) })...)
	err := l.send(ctx, answers...)
	return edits, err
}

// byID adds statements that read the tasks of keys, in the order in which all
// transactions lock them.
func (l *link) byID(statement string, keys []taskKey, found func(*row)) (answers []func(values) error) {
	names := make(map[uint32][]string)
	for _, k := range keys {
		names[k.queueID] = append(names[k.queueID], k.id)
	}
	for _, id := range queueIDs(keys, func(k taskKey) uint32 { return k.queueID }) {
		list := names[id]
		slices.Sort(list)
		list = slices.Compact(list)
		for len(list) > 0 {
			n := min(len(list), keysPerStatement)
			l.add(statement, id, list[:n])
			answers = append(answers, func(v values) error { found(scanRow(v)); return nil })
			list = list[n:]
		}
	}
	return answers
}
