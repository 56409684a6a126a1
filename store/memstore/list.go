package memstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"github.com/duetime/duetime/store"
)

// List implements store.Store.
func (s *Store) List(ctx context.Context, r store.ListRequest) (store.ListPage, error) {
	if err := r.Check(); err != nil {
		return store.ListPage{}, err
	}
	var cursor key
	if r.Cursor != "" {
		var err error
		if cursor, err = parseCursor(&r); err != nil {
			return store.ListPage{}, err
		}
	}
	now, err := s.begin(ctx, 0)
	if err != nil {
		return store.ListPage{}, err
	}
	defer s.mu.Unlock()
	var page store.ListPage
	q := s.queue(r.Queue, now)
	if q == nil {
		return page, nil
	}
	from, to := bounds(r.State, now)
	if from.less(cursor) {
		from = cursor
	}
	var last key
	q.order(r.State).after(from, func(t *task) bool {
		if to.less(t.byDue()) {
			return false
		}
		if len(page.Tasks) == r.Limit {
			page.Cursor = makeCursor(&r, last)
			return false
		}
		page.Tasks = append(page.Tasks, t.view(now, r.Payloads))
		last = t.byDue()
		return true
	})
	return page, nil
}

var endOfTime = endOf(time.UnixMilli(math.MaxInt64))

// endOf is after all keys of tasks that are due at now or before.
func endOf(now time.Time) key { return key{now.UnixMilli(), math.MaxUint64} }

// bounds says where the tasks of a state are in its order: after from, up to to.
func bounds(state store.State, now time.Time) (from, to key) {
	switch state {
	case store.StateScheduled:
		return endOf(now), endOfTime
	case store.StateReady:
		return key{}, endOf(now)
	default:
		return key{}, endOfTime
	}
}

func (q *queue) all(state store.State, from, to key) []*task {
	var tasks []*task
	q.order(state).after(from, func(t *task) bool {
		if to.less(t.byDue()) {
			return false
		}
		tasks = append(tasks, t)
		return true
	})
	return tasks
}

// A cursor is the key of the last task on the page before it, and a checksum
// over it and the request, so that one that was damaged, or made for another
// queue or state, is told apart.
func makeCursor(r *store.ListRequest, k key) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(k.at))
	b = binary.BigEndian.AppendUint64(b, k.seq)
	b = binary.BigEndian.AppendUint32(b, cursorSum(r, b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(r *store.ListRequest) (key, error) {
	b, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	if err != nil || len(b) != 20 || binary.BigEndian.Uint32(b[16:]) != cursorSum(r, b[:16]) {
		return key{}, store.NewInputError("cursor", r.Cursor, "is not one that a list of %s tasks of queue %q returned", r.State, r.Queue)
	}
	return key{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}, nil
}

func cursorSum(r *store.ListRequest, key []byte) uint32 {
	sum := crc32.ChecksumIEEE(key)
	return crc32.Update(sum, crc32.IEEETable, append([]byte{byte(r.State)}, r.Queue...))
}
