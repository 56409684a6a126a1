package mysqlstore

import (
	"context"

	"github.com/duetime/duetime/store"
)

// clockMilli is the store's clock in milliseconds as SQL, for statements that can
// not wait for an answer to what time it is.
func (s *Store) clockMilli() raw {
	if s.opts.now != nil {
		return raw(appendLiteral(nil, s.opts.now().UnixMilli()))
	}
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000"
}

// ackAll acks a slice, all of which are acks, with one statement, which is what
// workers do most. It reports false, and has changed nothing, where not every one
// of them is good: then they have to be looked at one by one.
func (s *Store) ackAll(ctx context.Context, slice []int, parts []store.ReceiptParts, found map[string]*queue) (done bool, err error) {
	type batch struct {
		ids   []string
		pairs []tuple
	}
	batches := make(map[uint32]*batch)
	for _, i := range slice {
		id := found[parts[i].Queue].id
		b := batches[id]
		if b == nil {
			b = &batch{}
			batches[id] = b
		}
		b.ids = append(b.ids, parts[i].ID)
		b.pairs = append(b.pairs, tuple{parts[i].ID, parts[i].Token})
	}
	order := queueIDs(slice, func(i int) uint32 { return found[parts[i].Queue].id })
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		done = false
		counts := make(map[uint32]*count)
		total := 0
		var answers []func(values) error
		l.begin()
		for _, id := range order {
			l.add("ack", id, batches[id].ids, batches[id].pairs, s.clockMilli())
			l.sql("SELECT ROW_COUNT()")
			answers = append(answers, func(v values) error {
				total += int(v.int(0))
				counts[id] = newCount()
				counts[id].leased = -v.int(0)
				return nil
			})
		}
		if err := l.send(ctx, answers...); err != nil {
			return err
		}
		if total != len(slice) {
			return l.undo(ctx)
		}
		done = true
		l.tally(counts)
		l.commit()
		return l.send(ctx)
	})
	return done && err == nil, err
}

// ackSlices acks, where all settlements are acks, what it can at once. It returns
// those that are left.
func (s *Store) ackSlices(ctx context.Context, settlements []store.Settlement, parts []store.ReceiptParts, wrong []error, results []store.Result) (left []int, err error) {
	names := make(map[string]bool)
	all := make([]int, len(settlements))
	simple := true
	for i := range settlements {
		all[i] = i
		simple = simple && wrong[i] == nil && settlements[i].Action == store.Ack
		names[parts[i].Queue] = true
	}
	if !simple {
		return all, nil
	}
	found, err := s.find(ctx, names)
	if err != nil || len(found) < len(names) {
		return all, err
	}
	for len(all) > 0 {
		n := min(len(all), byIDSlice)
		done, err := s.ackAll(ctx, all[:n], parts, found)
		if err != nil {
			return nil, err
		}
		if done {
			for _, i := range all[:n] {
				results[i] = store.Result{Outcome: store.Acked}
			}
		} else {
			left = append(left, all[:n]...)
		}
		all = all[n:]
	}
	return left, nil
}
