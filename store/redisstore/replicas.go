package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

// sendAndWait sends calls that change something and waits until the replicas
// have them. WAIT speaks of what its own connection wrote, so that each shard's
// calls get a connection of their own.
func (s *Store) sendAndWait(ctx context.Context, calls []call, commands []rueidis.Completed) ([]rueidis.RedisResult, error) {
	results := make([]rueidis.RedisResult, len(commands))
	for from := 0; from < len(commands); {
		to := from + 1
		for to < len(commands) && calls[to].shard == calls[from].shard {
			to++
		}
		err := s.client.Dedicated(func(c rueidis.DedicatedClient) error {
			copy(results[from:to], c.DoMulti(ctx, commands[from:to]...))
			for _, r := range results[from:to] {
				if r.Error() != nil {
					return nil // the caller sees it
				}
			}
			n, err := c.Do(ctx, c.B().Wait().Numreplicas(int64(s.opts.WaitReplicas)).Timeout(s.opts.WaitTimeout.Milliseconds()).Build()).AsInt64()
			if err != nil {
				return s.broken(ctx, err)
			}
			if n < int64(s.opts.WaitReplicas) {
				return fmt.Errorf("redis: the master has it, but only %d of %d replicas had it after %v", n, s.opts.WaitReplicas, s.opts.WaitTimeout)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		from = to
	}
	return results, nil
}
