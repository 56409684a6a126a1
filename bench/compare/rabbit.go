package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/rabbitstore"
)

func openOurRabbit(hands int) func(context.Context) (system, error) {
	return func(ctx context.Context) (system, error) {
		server, err := testserver.StartRabbitMQ(nil)
		if err != nil {
			return nil, err
		}
		st, err := rabbitstore.Open(ctx, server.URL(), nil)
		if err != nil {
			server.Close()
			return nil, err
		}
		o := newOurs(st, hands, server.Close)
		runs := 0
		o.fresh = func() string { runs++; return fmt.Sprintf("compare-%d", runs) }
		return o, nil
	}
}

// published is RabbitMQ as articles use it: a message with a time to live goes to a
// queue that nobody reads, and from there, when it has expired at the head of it, to
// the one that is read. A long delay at the head holds back the short ones behind it.
type published struct {
	server   *testserver.RabbitMQServer
	kind     string // of the queues: classic or quorum
	conns    []*amqp091.Connection
	channels []*amqp091.Channel
	runs     int
	delay    string
	work     string
}

func openPublished(kind string) func(context.Context) (system, error) {
	return func(context.Context) (_ system, err error) {
		server, err := testserver.StartRabbitMQ(nil)
		if err != nil {
			return nil, err
		}
		p := &published{server: server, kind: kind}
		defer func() {
			if err != nil {
				p.close()
			}
		}()
		for i := range singleProducers {
			if i%8 == 0 {
				c, err := amqp091.Dial(server.URL())
				if err != nil {
					return nil, err
				}
				p.conns = append(p.conns, c)
			}
			ch, err := p.conns[len(p.conns)-1].Channel()
			if err != nil {
				return nil, err
			}
			if err := ch.Confirm(false); err != nil {
				return nil, err
			}
			p.channels = append(p.channels, ch)
		}
		return p, nil
	}
}

func (p *published) reset(context.Context) error {
	ch, err := p.conns[0].Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	if p.runs > 0 {
		for _, q := range []string{p.delay, p.work} {
			if _, err := ch.QueueDelete(q, false, false, false); err != nil {
				return err
			}
		}
	}
	p.runs++
	p.delay, p.work = fmt.Sprintf("delay-%d", p.runs), fmt.Sprintf("work-%d", p.runs)
	if _, err := ch.QueueDeclare(p.work, true, false, false, false, amqp091.Table{"x-queue-type": p.kind}); err != nil {
		return err
	}
	_, err = ch.QueueDeclare(p.delay, true, false, false, false, amqp091.Table{
		"x-queue-type": p.kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": p.work,
	})
	return err
}

func (p *published) put(ctx context.Context, producer, from, to int, due func(int) time.Time) error {
	confirms := make([]*amqp091.DeferredConfirmation, 0, to-from)
	for i := from; i < to; i++ {
		ttl := max(0, time.Until(due(i))+time.Millisecond-1).Milliseconds()
		c, err := p.channels[producer].PublishWithDeferredConfirmWithContext(ctx, "", p.delay, true, false, amqp091.Publishing{
			DeliveryMode: amqp091.Persistent, Expiration: strconv.FormatInt(ttl, 10), Body: payload(i, due(i)),
		})
		if err != nil {
			return err
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			return fmt.Errorf("not confirmed: %w", err)
		}
	}
	return nil
}

func (p *published) consume(_ context.Context, on func([]byte), acked func()) (func(), error) {
	const consumers, prefetch = 4, 1000
	var all sync.WaitGroup
	var conns []*amqp091.Connection
	stop := func() {
		for _, c := range conns {
			_ = c.Close()
		}
		all.Wait()
	}
	for range consumers {
		c, err := amqp091.Dial(p.server.URL())
		if err != nil {
			stop()
			return nil, err
		}
		conns = append(conns, c)
		ch, err := c.Channel()
		if err == nil {
			err = ch.Qos(prefetch, 0, false)
		}
		if err != nil {
			stop()
			return nil, err
		}
		messages, err := ch.Consume(p.work, "", false, false, false, false, nil)
		if err != nil {
			stop()
			return nil, err
		}
		all.Go(func() {
			for m := range messages {
				on(m.Body)
				if m.Ack(false) == nil {
					acked()
				}
			}
		})
	}
	return stop, nil
}

func (p *published) close() {
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.server.Close()
}
