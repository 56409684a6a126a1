package redisstore

import (
	"context"
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unsafe"

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
	var last *store.NewTask // whose options are told
	told := ""
	return s.byID(ctx, &byID{
		queue:  queue,
		script: s.scripts().schedule,
		create: true,
		head:   []string{strconv.FormatInt(base, 10)},
		tail: func(args []string, items []int) []string {
			return append(args, places(place, items), news(tasks, items))
		},
		id: func(i int) string { return tasks[i].ID },
		args: func(args []string, i int) []string {
			t := &tasks[i]
			rest := ""
			if len(t.Headers) > 0 {
				rest = string(appendRest(nil, t.Headers, t.Payload))
			} else if len(t.Payload) > 0 {
				// The caller's memory, but it is only read until the call returns.
				rest = unsafe.String(&t.Payload[0], len(t.Payload))
			}
			if last == nil || !sameOptions(last, t) {
				last, told = t, options(t)
			}
			return append(args, t.ID, told, rest)
		},
		exceptions: true,
		bytes:      func(i int) int { return len(tasks[i].Payload) + store.MaxIDBytes },
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

// places are where items stand in their batch, as scripts read them; empty where
// they take their order from the shard.
func places(place map[int]int, items []int) string {
	if place == nil {
		return ""
	}
	b := make([]byte, 0, 3*len(items))
	for _, i := range items {
		p := place[i]
		b = append(b, byte(p>>16), byte(p>>8), byte(p))
	}
	return string(b)
}

// sameOptions says that options are the same for two tasks.
func sameOptions(a, b *store.NewTask) bool {
	return a.Delay == b.Delay && a.Due.Equal(b.Due) && a.MaxAttempts == b.MaxAttempts &&
		a.Conflict == b.Conflict && len(a.Headers) == 0 && len(b.Headers) == 0
}

// news tells a script that no id of a call can be there, in which case it does not
// look.
func news(tasks []store.NewTask, items []int) string {
	for _, i := range items {
		if !tasks[i].NewID {
			return ""
		}
	}
	return "n"
}

// options are what a script is told of a task; see lua/schedule.lua.
func options(t *store.NewTask) string {
	var b [13]byte
	if t.Conflict == store.ConflictReplace {
		b[0] |= replaces
	}
	if len(t.Headers) > 0 {
		b[0] |= hasHeaders
	}
	o := b[:1]
	if t.Due.IsZero() {
		b[0] |= delayed
		us := t.Delay.Microseconds()
		if t.Delay%time.Microsecond > 0 {
			us++
		}
		o = binary.BigEndian.AppendUint16(appendMilli(o, us/1000), uint16(us%1000))
	} else {
		o = appendMilli(o, store.CeilMilli(t.Due).UnixMilli())
	}
	if t.MaxAttempts > 0 {
		b[0] |= hasCounters
		o = binary.BigEndian.AppendUint32(o, uint32(t.MaxAttempts))
	}
	return string(o)
}

// scheduled reads the answer for one task; nil means that it was created.
func (s *Store) scheduled(t *store.NewTask, v *rueidis.RedisMessage, r *reply, result *store.Result) verdict {
	now := r.now()
	outcome := store.Created
	if v != nil {
		list, err := v.ToArray()
		if err != nil || len(list) == 0 {
			*result = store.Result{Err: errRecord}
			return settled
		}
		word, _ := list[0].ToString()
		switch word {
		case "c":
		case "r":
			outcome = store.Replaced
		case "e":
			*result = exists(t.Queue, t.ID, list, now)
			return settled
		case "l":
			_, err := store.DueTime(now, t.Due, t.Delay)
			if err == nil {
				err = store.NewInputError("delay", t.Delay, "ends too late")
			}
			*result = store.Result{Err: err}
			return settled
		case "m":
			return moving
		default:
			return elsewhere
		}
	}
	// What the script reckoned from the same clock. A delay may be finer than
	// microseconds, which it was told rounded up.
	delay := t.Delay
	if r := delay % time.Microsecond; r > 0 && delay < math.MaxInt64-time.Microsecond {
		delay += time.Microsecond - r
	}
	due, err := store.DueTime(now, t.Due, delay)
	if err != nil {
		*result = store.Result{Err: err}
		return settled
	}
	*result = store.Result{Outcome: outcome, Due: due, At: store.CeilMilli(now)}
	return settled
}

// exists is the result where an answer says that a task is there.
func exists(queue, id string, answer []rueidis.RedisMessage, now time.Time) store.Result {
	if len(answer) < 4 {
		return store.Result{Err: errRecord}
	}
	state, _ := answer[1].ToString()
	text, _ := answer[2].ToString()
	lease, _ := answer[3].ToString()
	task, err := readTask(queue, id, state, text, lease, now, true)
	if err != nil {
		return store.Result{Err: err}
	}
	return store.Result{Outcome: store.Exists, Task: &task}
}
