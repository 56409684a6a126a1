package diskstore

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

// perQueue calls f once for each queue that the items name, with the indexes of
// its items, in order. Most calls are about one queue.
func perQueue(n int, queueOf func(i int) string, f func(queue string, items []int) error) error {
	if n == 0 {
		return nil
	}
	var order []string
	items := make(map[string][]int, 1)
	for i := range n {
		name := queueOf(i)
		if _, ok := items[name]; !ok {
			order = append(order, name)
			items[name] = make([]int, 0, n-i)
		}
		items[name] = append(items[name], i)
	}
	for _, name := range order {
		if err := f(name, items[name]); err != nil {
			return err
		}
	}
	return nil
}

// Schedule implements store.Store.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if err := store.CheckBatch(len(tasks)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	now := s.now()
	full := s.space.check()
	results := make([]store.Result, len(tasks))
	err := perQueue(len(tasks), func(i int) string { return tasks[i].Queue }, func(name string, items []int) error {
		return s.scheduleQueue(name, now, full, tasks, items, results)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (s *Store) scheduleQueue(name string, now time.Time, full error, tasks []store.NewTask, items []int, results []store.Result) error {
	dues := make([]time.Time, len(items))
	good := 0
	for k, i := range items {
		var err error
		if dues[k], err = tasks[i].Check(now, s.maxPayload); err == nil {
			err = full
		}
		if err != nil {
			results[i] = store.Result{Err: err}
			continue
		}
		good++
	}
	if good == 0 {
		return nil
	}
	q, err := s.makeQueue(name)
	if err != nil {
		return err
	}
	if err := q.expire(now.UnixMilli()); err != nil {
		return err
	}
	q.mu.Lock()
	c := q.change(s.promised())
	seen := false // a task that was there; its own Schedule may not be durable yet
	for k, i := range items {
		if results[i].Err != nil {
			continue
		}
		if results[i], err = c.scheduleOne(&tasks[i], dues[k], now); err == nil {
			err = c.roomy()
		}
		if err != nil {
			break
		}
		seen = seen || results[i].Outcome == store.Exists
	}
	return c.commitPromised(err, seen)
}

func (c *change) scheduleOne(t *store.NewTask, due, now time.Time) (store.Result, error) {
	q := c.q
	if err := c.touch(t.ID); err != nil {
		return store.Result{}, err
	}
	at, there, err := c.finder.find(t.ID)
	if err != nil {
		return store.Result{}, err
	}
	created := store.CeilMilli(now).UnixMilli()
	rec := record{
		id: t.ID, created: created, maxAttempts: uint32(t.MaxAttempts),
		headers: t.Headers, payload: t.Payload,
	}
	outcome := store.Created
	if there {
		old, size, err := q.read(at, t.Conflict == store.ConflictKeep && !at.dead)
		switch {
		case unreadable(err):
			if err := c.setAsideAt(at, t.ID, err); err != nil {
				return store.Result{}, err
			}
		case err != nil:
			return store.Result{}, err
		case at.dead:
			c.removeDead(t.ID, at.pos, uint32(size))
		case t.Conflict == store.ConflictKeep:
			task := q.task(&old, at, now)
			return store.Result{Outcome: store.Exists, Task: &task}, nil
		default:
			rec.generation = old.generation + 1
			c.removeLive(t.ID, at.pos, uint32(size))
			outcome = store.Replaced
		}
	}
	p := pos{due.UnixMilli(), q.nextSeq}
	q.nextSeq++
	c.schedule(p, &rec)
	return store.Result{Outcome: outcome, Due: due, At: milli(created)}, nil
}

// removeLive removes a task that is pending or leased.
func (c *change) removeLive(id string, p pos, size uint32) {
	if l := c.q.leases.bySeq[p.seq]; l != nil {
		c.endLease(l)
	} else {
		c.q.drop(p)
	}
	c.remove(id, p, size)
}

func (c *change) removeDead(id string, p pos, size uint32) {
	c.deleteRecord(kindDead, p, size)
	c.deletePlace(id)
	c.q.dead--
}

// setAsideAt sets a record aside that was found by its id and could not be read;
// why says how.
func (c *change) setAsideAt(at place, id string, why error) error {
	if why == errGone { // set aside before, when its id could not be read
		c.deletePlace(id)
		if l := c.q.leases.bySeq[at.seq]; l != nil && l.id == id {
			c.endLease(l)
		}
		return nil
	}
	if at.dead {
		c.q.dead--
		key := appendPosKey(nil, kindDead, c.q.num, at.pos)
		c.delete(key)
		c.deletePlace(id)
		c.q.s.setAside.Add(1)
		return nil
	}
	l := c.q.leases.bySeq[at.seq]
	if l == nil {
		c.q.drop(at.pos)
	}
	return c.setAside(at.pos, id, l)
}
