package redisstore

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

// Schedule implements store.Store.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if err := store.CheckBatch(len(tasks)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	results := make([]store.Result, len(tasks))
	now := s.now()
	good := func(i int) string {
		if _, results[i].Err = tasks[i].Check(now, s.opts.MaxPayload); results[i].Err != nil {
			return ""
		}
		return tasks[i].Queue
	}
	err := perQueue(len(tasks), good, func(queue string, items []int) error {
		return s.scheduleQueue(ctx, queue, tasks, items, results)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (s *Store) scheduleQueue(ctx context.Context, queue string, tasks []store.NewTask, items []int, results []store.Result) error {
	failed := func(i int, err error) { results[i] = store.Result{Err: err} }
	base, place, err := s.sequence(ctx, queue, items)
	if full := asFull(err); full != nil {
		for _, i := range items {
			failed(i, full)
		}
		return nil
	} else if err != nil {
		return err
	}
	return s.byID(ctx, &byID{
		queue:  queue,
		script: s.scripts().schedule,
		create: true,
		head:   []string{strconv.FormatInt(base, 10)},
		id:     func(i int) string { return tasks[i].ID },
		args: func(args []string, i int) []string {
			t := &tasks[i]
			return append(args, t.ID, when(t.Due, t.Delay), options(t, place[i]), string(appendRest(nil, t.Headers, t.Payload)))
		},
		bytes: func(i int) int { return len(tasks[i].Payload) + store.MaxIDBytes },
		answer: func(i int, v *rueidis.RedisMessage, r *reply) verdict {
			return s.scheduled(&tasks[i], v, r, &results[i])
		},
		none:   func(int) {},
		failed: failed,
	}, items)
}

// sequence makes the queue where there is none, and takes sequence numbers from
// it where it has several shards: one sequence for all of them, or tasks that are
// due together would go out in another order than they came. It returns the number
// before the first, 0 where the shard has numbers of its own, and the places of
// the items, from 1.
func (s *Store) sequence(ctx context.Context, queue string, items []int) (base int64, place map[int]int, err error) {
	k, err := s.know(ctx, queue)
	if err == nil && k == nil {
		k, err = s.register(ctx, queue)
	}
	if err != nil || k == nil || len(k.shards) == 1 && k.old == nil {
		return 0, nil, err
	}
	n := int64(len(items))
	// One more than are needed, so that the number before the first is never 0.
	last, err := s.client.Do(ctx, s.client.B().Hincrby().Key(s.queueKey(queue)).Field("sequence").Increment(n+1).Build()).AsInt64()
	if err != nil {
		if full := fullError(err); full != nil {
			return 0, nil, full
		}
		return 0, nil, s.broken(ctx, err)
	}
	place = make(map[int]int, len(items))
	for n, i := range items {
		place[i] = n + 1
	}
	return last - n, place, nil
}

// when is a due time as scripts read it.
func when(due time.Time, delay time.Duration) string {
	if due.IsZero() {
		return "+" + duration(delay)
	}
	return strconv.FormatInt(store.CeilMilli(due).UnixMilli(), 10)
}

func options(t *store.NewTask, place int) string {
	var b [8]byte
	n := 4
	if t.MaxAttempts > 0 {
		b[0] |= hasCounters
		binary.BigEndian.PutUint32(b[4:], uint32(t.MaxAttempts))
		n = 8
	}
	if len(t.Headers) > 0 {
		b[0] |= hasHeaders
	}
	if t.Conflict == store.ConflictReplace {
		b[0] |= replaces
	}
	b[1], b[2], b[3] = byte(place>>16), byte(place>>8), byte(place)
	return string(b[:n])
}

// scheduled reads the answer for one task.
func (s *Store) scheduled(t *store.NewTask, v *rueidis.RedisMessage, r *reply, result *store.Result) verdict {
	now := r.now()
	if due, err := v.AsInt64(); err == nil {
		*result = store.Result{Outcome: store.Created, Due: fromMilli(due), At: store.CeilMilli(now)}
		return settled
	}
	list, err := v.ToArray()
	if err != nil || len(list) == 0 {
		*result = store.Result{Err: errRecord}
		return settled
	}
	word, _ := list[0].ToString()
	switch word {
	case "r":
		due, _ := list[1].AsInt64()
		*result = store.Result{Outcome: store.Replaced, Due: fromMilli(due), At: store.CeilMilli(now)}
	case "e":
		state, _ := list[1].ToString()
		text, _ := list[2].ToString()
		lease, _ := list[3].ToString()
		task, err := readTask(t.Queue, t.ID, state, text, lease, now, true)
		if err != nil {
			*result = store.Result{Err: err}
			return settled
		}
		*result = store.Result{Outcome: store.Exists, Task: &task}
	case "l":
		_, err := store.DueTime(now, t.Due, t.Delay)
		if err == nil {
			err = store.NewInputError("delay", t.Delay, "ends too late")
		}
		*result = store.Result{Err: err}
	case "m":
		return moving
	default:
		return elsewhere
	}
	return settled
}
