package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/store"
)

// rescueEvery is how often the store looks for strays.
const rescueEvery = 10 * time.Second

// A stray is a task that found no queue at the end of a rung, since somebody has
// deleted it by hand. The exchange sends it to the queue of strays, from where it
// goes on as soon as a store looks: what it should have come to is made anew.
func (s *Store) rescuer() {
	ticker := time.NewTicker(rescueEvery)
	defer ticker.Stop()
	for {
		ctx, cancel := s.callContext()
		if n, err := s.rescue(ctx); n > 0 || err != nil && s.ctx.Err() == nil && !isAway(err) {
			s.logger.Warn("duetime: tasks had lost their way in RabbitMQ, since a queue was deleted", "rescued", n, "error", err)
		}
		cancel()
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Store) rescue(ctx context.Context) (int, error) {
	var rescued atomic.Int64
	name := s.topology.strays()
	count, _, err := s.topology.depth(ctx, name)
	if err != nil || count == 0 {
		return 0, err
	}
	if err := s.topology.declareLadder(ctx); err != nil {
		return 0, err
	}
	err = s.topology.withChannel(ctx, func(ch *amqp.Channel) error {
		for range count {
			d, ok, err := ch.Get(name, false)
			if err != nil || !ok {
				return err
			}
			queue, _ := d.Headers[headerQueue].(string)
			t, err := decode(queue, &d)
			if err != nil || store.CheckQueue(queue) != nil || !s.isOurs(queue, &d) {
				continue // goes back when the channel is closed
			}
			stray := s.letter(&t, t.Due.Sub(s.now()))
			if err := s.topology.declareQueue(ctx, queue); err != nil {
				return err
			}
			if err := s.deliver(ctx, queue, []*letter{stray}); err != nil {
				return err
			}
			if stray.err != nil {
				return fmt.Errorf("publish a stray: %w", stray.err)
			}
			if err := ackAll(ch, []uint64{d.DeliveryTag}, true); err != nil {
				return err
			}
			rescued.Add(1)
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return int(rescued.Load()), err
}

// isOurs says that a stray was on its way to a queue of this store, and not of
// another that shares its ladder.
func (s *Store) isOurs(queue string, d *amqp.Delivery) bool {
	keys, _ := d.Headers["CC"].([]any)
	return len(keys) > 0 && keys[len(keys)-1] == s.topology.arrive(queue)
}
