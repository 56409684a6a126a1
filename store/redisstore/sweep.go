package redisstore

import (
	"context"
	"strconv"
	"time"
)

const (
	sweepBytes = 128 << 10            // that one script looks at, about
	sweepPause = 5 * time.Millisecond // between two scripts
)

// Swept is what a sweep found.
type Swept struct {
	Mended  int64 // tasks that were in no state, or in two, and are in one again
	Orphans int64 // entries without a task, removed
	Aside   int64 // records that can not be read, moved to the shard's hash "aside" with the reason
}

func (a *Swept) add(b Swept) {
	a.Mended += b.Mended
	a.Orphans += b.Orphans
	a.Aside += b.Aside
}

// sweeper sweeps all queues now and then. Of all processes that use them one does
// so at a time.
func (s *Store) sweeper() {
	for sleep(s.ending, s.opts.Sweep) == nil {
		names, err := s.client.Do(s.ending, s.client.B().Smembers().Key(s.registryKey()).Build()).AsStrSlice()
		if err != nil {
			continue
		}
		for _, name := range names {
			mine := s.client.Do(s.ending, s.client.B().Set().Key(s.queueKey(name)+":sweep").Value("1").Nx().Px(s.opts.Sweep*9/10).Build()).Error()
			if mine != nil {
				continue // another process does, or did
			}
			found, err := s.sweep(s.ending, name)
			if err != nil && s.ending.Err() == nil {
				s.opts.warnf("redis: sweep of queue %s: %v", name, err)
			}
			if found != (Swept{}) {
				s.opts.warnf("redis: queue %s: %d tasks that were in no state or in two were put right, %d entries without a task were removed, %d records that can not be read were set aside",
					name, found.Mended, found.Orphans, found.Aside)
			}
		}
	}
}

// Sweep looks at all of a queue for what should not exist: a task in no state or
// in two, a lease or an index entry without a task, a record that can not be read.
// It puts right what it can, sets aside what it can not, and says what it found.
// It works in small slices, beside everything else. A store does so by itself, see
// Options.Sweep; a call is for after a restore, or a change by hand.
func (s *Store) Sweep(ctx context.Context, queue string) (Swept, error) {
	if err := s.enter(ctx); err != nil {
		return Swept{}, err
	}
	defer s.ops.RUnlock()
	return s.sweep(ctx, queue)
}

func (s *Store) sweep(ctx context.Context, queue string) (Swept, error) {
	var total Swept
	err := s.onAll(ctx, queue, func(_ *known, shards []*shard) error {
		for _, sh := range shards {
			for _, what := range [5]string{"t", "l", "d", "e", "x"} {
				found, err := s.sweepKey(ctx, queue, sh, what)
				total.add(found)
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	s.counts.mended.Add(total.Mended)
	s.counts.aside.Add(total.Orphans + total.Aside)
	return total, err
}

func (s *Store) sweepKey(ctx context.Context, queue string, sh *shard, what string) (Swept, error) {
	var total Swept
	cursor, count := "0", 10
	for {
		r, err := s.one(ctx, call{s.scripts().sweep, sh, []string{what, cursor, strconv.Itoa(count)}})
		if err != nil {
			return total, err
		}
		if r.woke() {
			s.tick(queue)
		}
		total.add(Swept{Mended: r.number(5), Orphans: r.number(6), Aside: r.number(7)})
		if cursor = r.text(3); cursor == "0" {
			return total, nil
		}
		// As many as make up a script's share, by what the last ones weighed.
		each := max(64, int(r.number(4))/count)
		count = max(1, min(2*count, 300, sweepBytes/each))
		if err := sleep(ctx, sweepPause); err != nil {
			return total, err
		}
	}
}
