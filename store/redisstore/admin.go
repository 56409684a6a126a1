package redisstore

import (
	"context"
	"strconv"

	"github.com/duetime/duetime/store"
)

// adminItems is how many tasks one script brings back or removes.
const adminItems = 250

// Redrive implements store.Store.
func (s *Store) Redrive(ctx context.Context, r store.RedriveRequest) (int, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.ops.RUnlock()
	total := 0
	defer s.forget(r.Queue)
	err := s.onAll(ctx, r.Queue, func(k *known, shards []*shard) error {
		if err := s.expireAll(ctx, shards); err != nil {
			return err
		}
		// All get the due time of the first slice, so that they come in the order in
		// which they were scheduled.
		due := ""
		woke := false
		for _, sh := range shards {
			var ids []string
			for _, id := range r.IDs {
				if k.of(id) == sh || k.old != nil && k.old.of(id) == sh {
					ids = append(ids, id)
				}
			}
			for r.All || len(ids) > 0 {
				n := min(len(ids), adminItems)
				reply, err := s.one(ctx, call{s.scripts().redrive, sh, append([]string{due, strconv.Itoa(adminItems)}, ids[:n]...)})
				if err != nil {
					return err
				}
				s.sawClock(reply.now())
				if due == "" {
					due = strconv.FormatInt(reply.now().UnixMilli(), 10)
				}
				woke = woke || reply.woke()
				total += int(reply.number(3))
				ids = ids[n:]
				if r.All && reply.number(4) < adminItems {
					break
				}
			}
		}
		if woke {
			s.woke(ctx, r.Queue, k)
		}
		return nil
	})
	return total, err
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, queue string, state store.State) (int, error) {
	if err := (&store.ListRequest{Queue: queue, State: state}).Check(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.ops.RUnlock()
	total := 0
	defer s.forget(queue)
	err := s.onAll(ctx, queue, func(_ *known, shards []*shard) error {
		if err := s.expireAll(ctx, shards); err != nil {
			return err
		}
		now := ""
		for _, sh := range shards {
			for {
				reply, err := s.one(ctx, call{s.scripts().purge, sh, []string{letter(state), strconv.Itoa(adminItems), now}})
				if err != nil {
					return err
				}
				if now == "" {
					now = strconv.FormatInt(reply.now().UnixMilli(), 10)
				}
				total += int(reply.number(3))
				if reply.number(3) < adminItems {
					break
				}
			}
		}
		return nil
	})
	return total, err
}

// forget makes claims ask all shards of a queue again.
func (s *Store) forget(queue string) {
	q := s.queue(queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heads.forget()
}
