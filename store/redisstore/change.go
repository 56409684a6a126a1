package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	if err := store.CheckBatch(len(tasks)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	results := make([]store.Result, len(tasks))
	good := func(i int) string {
		if results[i].Err = store.CheckKey(tasks[i].Queue, tasks[i].ID); results[i].Err != nil {
			return ""
		}
		return tasks[i].Queue
	}
	err := perQueue(len(tasks), good, func(queue string, items []int) error {
		return s.byID(ctx, &byID{
			queue:  queue,
			script: s.scripts().cancel,
			id:     func(i int) string { return tasks[i].ID },
			args: func(args []string, i int) []string {
				force := "0"
				if tasks[i].Force {
					force = "1"
				}
				return append(args, tasks[i].ID, force)
			},
			answer: func(i int, v *rueidis.RedisMessage, _ *reply) verdict {
				n, _ := v.AsInt64()
				switch n {
				case 0:
					return absent
				case 1:
					results[i] = store.Result{Outcome: store.Cancelled}
				case 2:
					results[i] = store.Result{Outcome: store.Leased}
				default:
					return moving
				}
				return settled
			},
			none:   func(i int) { results[i] = store.Result{Outcome: store.NotFound} },
			failed: func(i int, err error) { results[i] = store.Result{Err: err} },
		}, items)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
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
		r := &tasks[i]
		err := store.CheckKey(r.Queue, r.ID)
		if err == nil {
			_, err = store.DueTime(now, r.Due, r.Delay)
		}
		if results[i].Err = err; err != nil {
			return ""
		}
		return r.Queue
	}
	err := perQueue(len(tasks), good, func(queue string, items []int) error {
		return s.byID(ctx, &byID{
			queue:  queue,
			script: s.scripts().reschedule,
			id:     func(i int) string { return tasks[i].ID },
			args: func(args []string, i int) []string {
				return append(args, tasks[i].ID, when(tasks[i].Due, tasks[i].Delay))
			},
			answer: func(i int, v *rueidis.RedisMessage, r *reply) verdict {
				due, _ := v.AsInt64()
				switch due {
				case -1:
					return absent
				case -2:
					results[i] = store.Result{Outcome: store.Leased}
				case -3:
					return moving
				case -4:
					_, err := store.DueTime(r.now(), tasks[i].Due, tasks[i].Delay)
					if err == nil {
						err = store.NewInputError("delay", tasks[i].Delay, "ends too late")
					}
					results[i] = store.Result{Err: err}
				default:
					results[i] = store.Result{Outcome: store.Rescheduled, Due: fromMilli(due)}
				}
				return settled
			},
			none:   func(i int) { results[i] = store.Result{Outcome: store.NotFound} },
			failed: func(i int, err error) { results[i] = store.Result{Err: err} },
		}, items)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	if err := store.CheckBatch(len(keys)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	results := make([]store.Result, len(keys))
	good := func(i int) string {
		if results[i].Err = store.CheckKey(keys[i].Queue, keys[i].ID); results[i].Err != nil {
			return ""
		}
		return keys[i].Queue
	}
	err := perQueue(len(keys), good, func(queue string, items []int) error {
		return s.byID(ctx, s.lookUp(queue, func(i int) string { return keys[i].ID }, func(i int, t *store.Task, err error) {
			switch {
			case err != nil:
				results[i] = store.Result{Err: err}
			case t == nil:
				results[i] = store.Result{Outcome: store.NotFound}
			default:
				results[i] = store.Result{Outcome: store.Found, Task: t}
			}
		}), items)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// lookUp is the operation that looks tasks up by their ids; found is told of each,
// with nil where there is none.
func (s *Store) lookUp(queue string, id func(i int) string, found func(i int, t *store.Task, err error)) *byID {
	return &byID{
		queue:  queue,
		script: s.scripts().get,
		id:     id,
		args:   func(args []string, i int) []string { return append(args, id(i)) },
		bytes:  func(int) int { return 16 << 10 }, // not known, and payloads come back
		answer: func(i int, v *rueidis.RedisMessage, r *reply) verdict {
			list, _ := v.ToArray()
			if len(list) < 3 {
				return absent
			}
			state, _ := list[0].ToString()
			if state == "m" {
				return moving
			}
			text, _ := list[1].ToString()
			lease, _ := list[2].ToString()
			t, err := readTask(queue, id(i), state, text, lease, r.now(), true)
			if err != nil {
				found(i, nil, err)
			} else {
				found(i, &t, nil)
			}
			return settled
		},
		none:   func(i int) { found(i, nil, nil) },
		failed: func(i int, err error) { found(i, nil, err) },
	}
}
