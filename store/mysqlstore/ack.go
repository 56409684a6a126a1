package mysqlstore

import (
	"cmp"
	"context"
	"slices"

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

// A receipt names its task's row: the lower half of the row's number is in the
// field Shard, the next 16 bits are before the 48 of the token.
const tokenBits = 48

func seqAndToken(p *store.ReceiptParts) (seq, token uint64) {
	return uint64(p.Shard) | p.Token>>tokenBits<<32, p.Token & (1<<tokenBits - 1)
}

func receipt(queue string, e *edit) store.Receipt {
	return store.ReceiptParts{
		Queue: queue, ID: e.id, Shard: uint32(e.seq), Generation: uint32(e.generation), Attempt: uint32(e.failures + e.lost + 1),
		Token: e.seq>>32<<tokenBits | e.token,
	}.Encode()
}

// ackAll acks a slice, all of which are acks, with one statement, which is what
// workers do most. It reports false, and has changed nothing, where not every one
// of them is good: then they have to be looked at one by one.
func (s *Store) ackAll(ctx context.Context, slice []int, parts []store.ReceiptParts, found map[string]*queue) (done bool, err error) {
	// By queue, for its counters, and token, in the order of their rows, as others
	// lock them.
	type batch struct {
		queueID uint32
		token   uint64
		seqs    []uint64
	}
	byClaim := make(map[[2]uint64]*batch)
	var batches []*batch
	for _, i := range slice {
		id := found[parts[i].Queue].id
		seq, token := seqAndToken(&parts[i])
		k := [2]uint64{uint64(id), token}
		b := byClaim[k]
		if b == nil {
			b = &batch{queueID: id, token: token}
			byClaim[k] = b
			batches = append(batches, b)
		}
		b.seqs = append(b.seqs, seq)
	}
	for _, b := range batches {
		slices.Sort(b.seqs)
	}
	slices.SortFunc(batches, func(a, b *batch) int { return cmp.Compare(a.seqs[0], b.seqs[0]) })
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		done = false
		counts := make(map[uint32]*count)
		total := 0
		var answers []func(values) error
		l.begin()
		for _, b := range batches {
			l.add("ack", whereSeq(b.seqs), b.token, s.clockMilli())
			l.sql("SELECT ROW_COUNT()")
			answers = append(answers, func(v values) error {
				total += int(v.int(0))
				if counts[b.queueID] == nil {
					counts[b.queueID] = newCount()
				}
				counts[b.queueID].leased -= v.int(0)
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
