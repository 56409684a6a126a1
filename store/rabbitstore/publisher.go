package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// letter is a message and its way.
type letter struct {
	key     string
	message amqp.Publishing

	// What became of it, once its batch is done. nil: it is stored.
	err error
}

var (
	// errReturned: no queue was there to take the message.
	errReturned = errors.New("no queue takes the message")
	// errRefused: the broker said no to the message.
	errRefused = errors.New("RabbitMQ did not store the message")
)

// publisher publishes with confirms, on one channel: a batch is written in one go,
// and each of its messages is done when the broker has said that it is stored.
type publisher struct {
	link *link

	// turn is held while a batch is written. It is a channel, so that those who
	// wait for a socket that does not take anything can give up.
	turn chan struct{}
	open *outgoing // under turn; nil: to be made
}

func newPublisher(l *link) *publisher { return &publisher{link: l, turn: make(chan struct{}, 1)} }

// outgoing is a channel in confirm mode.
type outgoing struct {
	channel *amqp.Channel
	gone    chan struct{} // closed when the channel is

	mu      sync.Mutex
	err     error               // why it is gone
	pending map[uint64]*pending // by delivery tag
}

type pending struct {
	letter   *letter
	batch    *batch
	returned bool
}

// batch counts letters without an answer.
type batch struct {
	left int // under outgoing.mu
	done chan struct{}
}

// send publishes letters to the default exchange, and returns when all are
// answered: letter.err says how. An error means that it is not known what became
// of them.
func (p *publisher) send(ctx context.Context, letters []*letter) error {
	if len(letters) == 0 {
		return nil
	}
	if err := p.link.unblocked(ctx); err != nil {
		return err
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return p.link.stuck(ctx.Err())
	}
	b := &batch{left: len(letters), done: make(chan struct{})}
	var out *outgoing
	var err error
	written := make(chan struct{})
	go func() {
		out, err = p.write(ctx, letters, b)
		<-p.turn
		close(written)
	}()
	select {
	case <-written:
	case <-ctx.Done():
		return p.link.stuck(ctx.Err())
	}
	if err != nil {
		return err
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return p.link.stuck(ctx.Err())
	case <-out.gone:
	}
	select { // the last answers may have come before the end
	case <-b.done:
		return nil
	default:
		return out.lost()
	}
}

func (p *publisher) write(ctx context.Context, letters []*letter, b *batch) (*outgoing, error) {
	out := p.open
	if out == nil || out.channel.IsClosed() {
		var err error
		if out, err = p.dial(ctx); err != nil {
			return nil, err
		}
		p.open = out
	}
	for _, l := range letters {
		// The channel numbers what it publishes. Nobody else publishes on it.
		tag := out.channel.GetNextPublishSeqNo()
		l.err = nil
		l.message.CorrelationId = strconv.FormatUint(tag, 10) // comes back with what is returned
		out.mu.Lock()
		out.pending[tag] = &pending{letter: l, batch: b}
		out.mu.Unlock()
		if err := out.channel.Publish("", l.key, true, false, l.message); err != nil {
			_ = out.channel.Close()
			<-out.gone
			return nil, out.lost()
		}
	}
	return out, nil
}

func (p *publisher) dial(ctx context.Context) (*outgoing, error) {
	conn, err := p.link.get(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel to publish: %w", err)
	}
	out := &outgoing{channel: channel, gone: make(chan struct{}), pending: make(map[uint64]*pending)}
	// Returns and confirmations are unbuffered and have one reader, so that a
	// return is always noted before the confirmation that follows it.
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	returns := channel.NotifyReturn(make(chan amqp.Return))
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation))
	go out.listen(closed, returns, confirms)
	if err := channel.Confirm(false); err != nil {
		_ = channel.Close()
		return nil, fmt.Errorf("publish with confirms: %w", err)
	}
	return out, nil
}

// listen takes what the broker says until the channel is closed.
func (o *outgoing) listen(closed chan *amqp.Error, returns chan amqp.Return, confirms chan amqp.Confirmation) {
	for closed != nil || returns != nil || confirms != nil {
		select {
		case err, ok := <-closed:
			if !ok {
				closed = nil
				break
			}
			o.mu.Lock()
			o.err = err
			o.mu.Unlock()
		case r, ok := <-returns:
			if !ok {
				returns = nil
				break
			}
			if tag, err := strconv.ParseUint(r.CorrelationId, 10, 64); err == nil {
				o.mu.Lock()
				if p := o.pending[tag]; p != nil {
					p.returned = true
				}
				o.mu.Unlock()
			}
		case c, ok := <-confirms:
			if !ok {
				confirms = nil
				break
			}
			o.answered(c)
		}
	}
	close(o.gone)
}

func (o *outgoing) answered(c amqp.Confirmation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pending[c.DeliveryTag]
	if p == nil {
		return
	}
	delete(o.pending, c.DeliveryTag)
	switch {
	case !c.Ack:
		p.letter.err = errRefused
	case p.returned:
		p.letter.err = errReturned
	}
	if p.batch.left--; p.batch.left == 0 {
		close(p.batch.done)
	}
}

// lost is the error of those whose answers never came.
func (o *outgoing) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err == nil:
		return errors.New("the connection to RabbitMQ was lost before it confirmed")
	case isCode(o.err, amqp.AccessRefused):
		return fmt.Errorf("RabbitMQ does not let this user publish: give it the permission write on amq.default (rabbitmqctl set_permissions): %w", o.err)
	}
	return fmt.Errorf("the connection to RabbitMQ was lost before it confirmed: %w", o.err)
}
