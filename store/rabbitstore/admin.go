package rabbitstore

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/store"
)

// Cancel is not possible: RabbitMQ can not find a message that waits.
func (s *Store) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	return nil, s.unsupported(ctx, len(tasks), "cancel")
}

// Reschedule is not possible, as Cancel is not.
func (s *Store) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	return nil, s.unsupported(ctx, len(tasks), "reschedule")
}

// Get is not possible, as Cancel is not.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	return nil, s.unsupported(ctx, len(keys), "get")
}

// List is not possible: a message can be looked at only by taking it.
func (s *Store) List(ctx context.Context, _ store.ListRequest) (store.ListPage, error) {
	return store.ListPage{}, s.unsupported(ctx, 0, "list")
}

func (s *Store) unsupported(ctx context.Context, n int, operation string) error {
	if err := s.begin(ctx, n); err != nil {
		return err
	}
	s.end()
	return store.Unsupported(storeName, operation)
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	if err := s.begin(ctx, 0); err != nil {
		return nil, err
	}
	defer s.end()
	return s.conf.names(), nil
}

// Stats implements store.Store, as far as AMQP tells: Ready and Dead are those of
// the broker, Leased is what this process has leased, Scheduled and NextDue are
// not known, and OldestDue only of what this process has in hand.
func (s *Store) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if err := store.CheckQueue(queue); err != nil {
		return store.Stats{}, err
	}
	if err := s.begin(ctx, 0); err != nil {
		return store.Stats{}, err
	}
	defer s.end()
	var stats store.Stats
	if l := s.existing(queue); l != nil {
		if err := l.expire(s.now()); err != nil {
			return store.Stats{}, fmt.Errorf("stats of %q: %w", queue, err)
		}
		l.mu.Lock()
		now := s.now()
		stats.Leased = int64(len(l.leases))
		for _, e := range l.held {
			if !e.task.Due.After(now) {
				stats.Ready++
			}
		}
		if e := l.due(now); e != nil {
			stats.OldestDue = e.task.Due
		}
		l.mu.Unlock()
	}
	ready, there, err := s.topology.depth(ctx, s.topology.ready(queue))
	if err != nil || !there {
		return stats, err
	}
	dead, _, err := s.topology.depth(ctx, s.topology.dead(queue))
	if err != nil {
		return store.Stats{}, err
	}
	stats.Ready += int64(ready)
	stats.Dead = int64(dead)
	return stats, nil
}

// Purge implements store.Store for dead tasks. Others can not be purged: they are
// on the ladder, among those of other queues.
func (s *Store) Purge(ctx context.Context, queue string, state store.State) (int, error) {
	if err := (&store.ListRequest{Queue: queue, State: state}).Check(); err != nil {
		return 0, err
	}
	if state != store.StateDead {
		return 0, s.unsupported(ctx, 0, "purge of "+state.String()+" tasks")
	}
	if err := s.begin(ctx, 0); err != nil {
		return 0, err
	}
	defer s.end()
	n := 0
	err := s.topology.withChannel(ctx, func(ch *amqp.Channel) (err error) {
		n, err = ch.QueuePurge(s.topology.dead(queue), false)
		return err
	})
	if isCode(err, amqp.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("purge dead tasks of %q: %w", queue, err)
	}
	return n, nil
}

// receive is the next message, if one comes soon.
func receive(ctx context.Context, deliveries <-chan amqp.Delivery) (d amqp.Delivery, ok bool) {
	select {
	case d, ok = <-deliveries:
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return d, ok
}

// redriveLook is how many dead tasks are looked at for given ids: the broker
// sends no more that are neither acked nor returned.
const redriveLook = 60_000

// redriveSlice is how many dead tasks are published before any of them is acked.
const redriveSlice = 500

// Redrive implements store.Store. Given ids, it looks at the queue's dead tasks
// one by one, up to 60,000. Where the process dies in the middle, up to 500 tasks are both dead and
// back.
func (s *Store) Redrive(ctx context.Context, r store.RedriveRequest) (int, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	if err := s.begin(ctx, 0); err != nil {
		return 0, err
	}
	defer s.end()
	name := s.topology.dead(r.Queue)
	count, there, err := s.topology.depth(ctx, name)
	if err != nil || !there {
		return 0, err
	}
	var moved atomic.Int64
	err = s.topology.withChannel(ctx, func(ch *amqp.Channel) error {
		// What is not asked for goes back where it was when the channel is closed.
		skipped := false
		var letters []*letter
		var tags []uint64
		flush := func() error {
			if err := s.deliver(ctx, r.Queue, letters); err != nil {
				return err
			}
			for _, l := range letters {
				if l.err != nil {
					return full(l.err)
				}
				moved.Add(1)
			}
			err := ackAll(ch, tags, skipped)
			letters, tags = nil, nil
			return err
		}
		prefetch := redriveSlice
		if !r.All {
			prefetch = min(count, redriveLook)
		}
		if err := ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(name, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		for range count {
			d, ok := receive(ctx, deliveries)
			if !ok {
				break // others have taken some
			}
			if !r.All && !slices.Contains(r.IDs, d.MessageId) {
				skipped = true
				continue
			}
			t, err := decode(r.Queue, &d)
			if err != nil {
				skipped = true
				continue // a message that is not ours stays for a person to look at
			}
			t.Failures, t.Lost, t.Due = 0, 0, s.now().Truncate(time.Millisecond)
			letters, tags = append(letters, s.letter(&t, 0)), append(tags, d.DeliveryTag)
			if len(letters) == redriveSlice {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		return flush()
	})
	if moved.Load() > 0 {
		s.wakers.tick(r.Queue)
	}
	if err != nil {
		return int(moved.Load()), fmt.Errorf("redrive dead tasks of %q: %w", r.Queue, err)
	}
	return int(moved.Load()), nil
}

// ackAll acks what one consumer got on a channel that is closed soon after. A
// channel queues up acks for a quorum queue, from some thirty on, and forgets them
// when it is closed; so they are sent as one where nothing lies between them, and
// else at a walking pace.
func ackAll(ch *amqp.Channel, tags []uint64, gaps bool) error {
	if len(tags) == 0 {
		return nil
	}
	if !gaps {
		if err := ch.Ack(tags[len(tags)-1], true); err != nil {
			return err
		}
		return ch.Qos(1, 0, false) // as in source.barrier
	}
	for group := range slices.Chunk(tags, 16) {
		for _, tag := range group {
			if err := ch.Ack(tag, false); err != nil {
				return err
			}
		}
		if err := ch.Qos(1, 0, false); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
