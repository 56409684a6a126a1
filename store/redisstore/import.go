package redisstore

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

var _ store.Importer = (*Store)(nil)

// Import implements store.Importer.
func (s *Store) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	if err := store.CheckBatch(len(tasks)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	results := make([]store.Result, len(tasks))
	as := make([]store.Task, len(tasks))
	good := func(i int) string {
		if as[i], results[i].Err = tasks[i].CheckImport(s.opts.MaxPayload); results[i].Err != nil {
			return ""
		}
		return as[i].Queue
	}
	err := perQueue(len(tasks), good, func(queue string, items []int) error {
		return s.importQueue(ctx, queue, as, items, results)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (s *Store) importQueue(ctx context.Context, queue string, tasks []store.Task, items []int, results []store.Result) error {
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
		script: s.scripts().imports,
		create: true,
		head:   []string{strconv.FormatInt(base, 10)},
		id:     func(i int) string { return tasks[i].ID },
		args: func(args []string, i int) []string {
			flags, rest := importRecord(&tasks[i])
			state := byte('s')
			if tasks[i].State == store.StateDead {
				state = 'd'
			}
			p := place[i]
			return append(args, tasks[i].ID, string([]byte{state, byte(p >> 16), byte(p >> 8), byte(p), flags}), rest)
		},
		bytes: func(i int) int { return len(tasks[i].Payload) + store.MaxIDBytes },
		answer: func(i int, v *rueidis.RedisMessage, r *reply) verdict {
			if due, err := v.AsInt64(); err == nil {
				results[i] = store.Result{Outcome: store.Created, Due: fromMilli(due), At: tasks[i].Created}
				return settled
			}
			list, _ := v.ToArray()
			if len(list) == 0 {
				results[i] = store.Result{Err: errRecord}
				return settled
			}
			switch word, _ := list[0].ToString(); word {
			case "e":
				results[i] = exists(queue, tasks[i].ID, list, r.now())
				return settled
			case "m":
				return moving
			default:
				return elsewhere
			}
		},
		none:   func(int) {},
		failed: failed,
	}, items)
}

// importRecord is a record without its sequence: its flags, and what comes after.
func importRecord(t *store.Task) (flags byte, rest string) {
	b := appendMilli(nil, t.Created.UnixMilli())
	b = appendMilli(b, t.Due.UnixMilli())
	if t.Generation+t.Failures+t.Lost+t.MaxAttempts > 0 {
		flags |= hasCounters
		for _, n := range [4]int{t.Generation, t.Failures, t.Lost, t.MaxAttempts} {
			b = binary.BigEndian.AppendUint32(b, uint32(n))
		}
	}
	if t.LastError != "" {
		flags |= hasError
		b = binary.BigEndian.AppendUint16(b, uint16(len(t.LastError)))
		b = append(b, t.LastError...)
	}
	if len(t.Headers) > 0 {
		flags |= hasHeaders
	}
	return flags, string(appendRest(b, t.Headers, t.Payload))
}

// appendMilli appends six bytes.
func appendMilli(b []byte, ms int64) []byte {
	return append(b, binary.BigEndian.AppendUint64(nil, uint64(ms))[2:]...)
}
