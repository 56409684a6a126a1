package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// QueueType is what kind of queues RabbitMQ keeps tasks in.
type QueueType string

const (
	// Quorum queues hand messages from rung to rung with confirmations, so that
	// none is lost when the broker dies in between. Needs RabbitMQ 3.10.
	Quorum QueueType = "quorum"

	// Classic durable queues cost the broker about half as much. They hand
	// messages on unconfirmed: when the broker is killed, those that are between
	// two queues at that moment, and those whose wait runs out while it is down,
	// are lost.
	Classic QueueType = "classic"
)

// arguments of a queue that tasks wait in to be handed out.
func (q QueueType) arguments() amqp.Table {
	return amqp.Table{"x-queue-type": string(q)}
}

// rungArguments are those of the queue that is rung k.
func (t *topology) rungArguments(k int) amqp.Table {
	args := t.kind.arguments()
	args["x-message-ttl"] = t.ladder.wait(k).Milliseconds()
	args["x-dead-letter-exchange"] = t.rungDone(k)
	if t.kind == Quorum {
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish" // at-least-once needs it
	}
	return args
}

// topology declares queues and exchanges. All of it can be declared again at any
// time by anybody; what is there already is left alone.
type topology struct {
	names
	ladder ladder
	kind   QueueType
	link   *link
	ripen  time.Duration // for how long a new quorum queue is left alone
}

func (t *topology) rung(k int) string {
	return t.prefix + "." + version + ".wait." + t.ladder.name(k)
}

func (t *topology) rungDone(k int) string {
	return t.prefix + "." + version + ".done." + t.ladder.name(k)
}

// newQueueTime: RabbitMQ writes down within half a second that a quorum queue
// exists. Killed before, it has the queue's messages when it is back, and no queue.
const newQueueTime = time.Second

// declareFor is for how long a queue is declared again that a busy broker could not
// make.
const declareFor = 10 * time.Second

// withChannel calls f with a channel that is then closed. What the broker thinks
// is wrong closes the channel too. Where ctx ends, or the broker does not answer,
// it returns while f may still be on its way: after an error nobody may look at
// what f sets, unless it is atomic.
func (t *topology) withChannel(ctx context.Context, f func(*amqp.Channel) error) error {
	conn, err := t.link.get(ctx)
	if err != nil {
		return err
	}
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		defer channel.Close()
		done <- f(channel)
	}()
	timer := time.NewTimer(callTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errNoAnswer
	}
	go channel.Close()
	return err
}

// declareLadder makes what all queues share.
func (t *topology) declareLadder(ctx context.Context) error {
	err := t.withChannel(ctx, t.ladderOn)
	if isCode(err, amqp.AccessRefused) && t.ladderIsThere(ctx) {
		return nil // somebody who may has made it
	}
	return explainDeclare(err, t.prefix+"."+version, t.kind)
}

func (t *topology) ladderOn(ch *amqp.Channel) error {
	// What can not be routed further goes to the strays, of which see rescue.
	if err := ch.ExchangeDeclare(t.strays(), amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(t.strays(), true, false, false, false, t.kind.arguments()); err != nil {
		return err
	}
	if err := ch.QueueBind(t.strays(), "", t.strays(), false, nil); err != nil {
		return err
	}
	alternate := amqp.Table{"alternate-exchange": t.strays()}
	if err := ch.ExchangeDeclare(t.arrivals(), amqp.ExchangeDirect, true, false, false, false, alternate); err != nil {
		return err
	}
	// Exchanges and bindings first, so that a rung never has nowhere to hand on
	// to. Bindings are many: the broker is not asked about each.
	for k := range t.ladder {
		if err := ch.ExchangeDeclare(t.rungDone(k), amqp.ExchangeDirect, true, false, false, false, alternate); err != nil {
			return err
		}
		if err := ch.ExchangeBind(t.arrivals(), t.ladder.last(k), t.rungDone(k), false, nil); err != nil {
			return err
		}
	}
	for k := range t.ladder {
		if _, err := ch.QueueDeclare(t.rung(k), true, false, false, false, t.rungArguments(k)); err != nil {
			return err
		}
		for j := k + 1; j < len(t.ladder); j++ {
			if err := ch.QueueBind(t.rung(k), t.ladder.hop(j, k), t.rungDone(j), true, nil); err != nil {
				return err
			}
		}
	}
	return ch.Qos(1, 0, false) // an answer: all that was not asked about went well
}

func (t *topology) ladderIsThere(ctx context.Context) bool {
	return t.withChannel(ctx, func(ch *amqp.Channel) error {
		for k := range t.ladder {
			if _, err := ch.QueueDeclarePassive(t.rung(k), true, false, false, false, nil); err != nil {
				return err
			}
		}
		return nil
	}) == nil
}

// declareQueue makes what belongs to one of our queues.
func (t *topology) declareQueue(ctx context.Context, queue string) error {
	_, was, err := t.depth(ctx, t.ready(queue))
	if err != nil {
		return err
	}
	for pause, begun := 50*time.Millisecond, time.Now(); ; pause *= 2 {
		err = t.withChannel(ctx, func(ch *amqp.Channel) error {
			for _, name := range []string{t.dead(queue), t.ready(queue)} {
				if _, err := ch.QueueDeclare(name, true, false, false, false, t.kind.arguments()); err != nil {
					return err
				}
			}
			return ch.QueueBind(t.ready(queue), t.arrive(queue), t.arrivals(), false, nil)
		})
		// So says a broker that has not managed to start a queue in time, to everybody on
		// the connection.
		if !isCode(err, amqp.InternalError) || time.Since(begun) > declareFor {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if isCode(err, amqp.AccessRefused) {
		if _, there, e := t.depth(ctx, t.ready(queue)); there && e == nil {
			return nil
		}
	}
	if err == nil && !was && t.kind == Quorum {
		select {
		case <-time.After(t.ripen):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return explainDeclare(err, t.ready(queue), t.kind)
}

// depth is how many messages of a queue nobody has in hand, and whether there is
// such a queue.
func (t *topology) depth(ctx context.Context, name string) (messages int, there bool, err error) {
	var q amqp.Queue
	err = t.withChannel(ctx, func(ch *amqp.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	if isCode(err, amqp.NotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look at RabbitMQ's queue %s: %w", name, err)
	}
	return q.Messages, true, nil
}

func isCode(err error, code int) bool {
	var e *amqp.Error
	return errors.As(err, &e) && e.Code == code
}

// explainDeclare says what to do about what the broker did not like.
func explainDeclare(err error, what string, kind QueueType) error {
	switch {
	case err == nil:
		return nil
	case isCode(err, amqp.AccessRefused):
		return fmt.Errorf("RabbitMQ does not let this user make or use %s: give it the permissions configure, write and read on names that begin so, and write on amq.default (rabbitmqctl set_permissions): %w", what, err)
	case isCode(err, amqp.PreconditionFailed):
		return fmt.Errorf("%s is there already, but with queues of another type than %s: open the store with the same queue type as before, or with another prefix: %w", what, kind, err)
	}
	return fmt.Errorf("declare %s in RabbitMQ: %w", what, err)
}
