package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// source is a channel on which messages are received. What was received on it
// can be acked on it only, and goes back to the broker when it is closed.
type source struct {
	lane    *lane
	channel *amqp.Channel

	// calls is held for calls that the broker answers; the library wants one at
	// a time.
	calls sync.Mutex

	// Under lane.mu.
	closed   bool
	unacked  int  // messages in hand
	retiring bool // no more come: it is to be closed when none is in hand
}

// openSource opens a channel to receive a lane's messages on.
func (l *lane) openSource(ctx context.Context) (*source, error) {
	conn, err := l.store.receiving.get(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel to receive: %w", err)
	}
	src := &source{lane: l, channel: channel}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	l.store.work.Go(func() {
		err := <-closed
		l.closed(src, err)
	})
	return src, nil
}

// ackTime is for how long a channel is kept after its last ack.
const ackTime = 5 * time.Second

// ack acks messages of this source. They count as done only after barrier.
func (s *source) ack(tags []uint64) error {
	s.lane.store.acked.Store(time.Now().UnixNano())
	for _, tag := range tags {
		if err := s.channel.Ack(tag, false); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	return nil
}

// barrier waits until the broker has carried out all that was sent on the
// channel before. AMQP has no answer to an ack; but the broker does what comes on
// one channel in order, so an answer to what follows is one to the acks as well.
// Qos is the cheapest such call: it changes nothing for consumers that are there.
func (s *source) barrier() error {
	_, err := timed(s, func() (struct{}, error) { return struct{}{}, s.channel.Qos(1, 0, false) })
	if err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	return nil
}

// answerTime is for how long the broker may take to answer. One that has just
// started may never answer what it was asked about a queue without a leader.
const answerTime = 5 * time.Second

var errNoAnswer = errors.New("RabbitMQ does not answer")

// timed makes a call that the broker answers. Where it does not, the channel is
// given up: what was received on it comes again when the broker has closed it.
func timed[T any](s *source, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		s.calls.Lock()
		defer s.calls.Unlock()
		value, err := call()
		done <- answer{value, err}
	}()
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.value, a.err
	case <-timer.C:
		go s.channel.Close()
		var none T
		return none, errNoAnswer
	}
}

// depth is how many messages a queue has that nobody has in hand.
func (s *source) depth(queue string) (int, error) {
	q, err := timed(s, func() (amqp.Queue, error) {
		return s.channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	})
	return q.Messages, err
}

// get takes one message, if there is one.
func (s *source) get(queue string) (amqp.Delivery, bool, error) {
	d, err := timed(s, func() (*amqp.Delivery, error) {
		d, ok, err := s.channel.Get(queue, false)
		if !ok {
			return nil, err
		}
		return &d, err
	})
	if d == nil {
		return amqp.Delivery{}, false, err
	}
	return *d, true, err
}

// consume has up to prefetch messages sent.
func (s *source) consume(queue, tag string, prefetch int) (<-chan amqp.Delivery, error) {
	return timed(s, func() (<-chan amqp.Delivery, error) {
		if err := s.channel.Qos(prefetch, 0, false); err != nil {
			return nil, err
		}
		return s.channel.Consume(queue, tag, false, false, false, false, nil)
	})
}

// cancel ends what consume began. What is on its way still comes.
func (s *source) cancel(tag string) error {
	_, err := timed(s, func() (struct{}, error) { return struct{}{}, s.channel.Cancel(tag, false) })
	return err
}

// settled says that a message is no longer in hand. Under lane.mu.
func (s *source) settled() {
	s.unacked--
	s.closeIfDone()
}

// retire closes the source once nothing of it is in hand. Under lane.mu.
func (s *source) retire() {
	s.retiring = true
	s.closeIfDone()
}

func (s *source) closeIfDone() {
	if s.retiring && s.unacked <= 0 && !s.closed {
		s.closed = true
		s.lane.store.work.Go(func() {
			// A channel queues up acks for a quorum queue that is busy, and forgets
			// them when it is closed.
			select {
			case <-time.After(ackTime):
			case <-s.lane.store.base.Done():
				return // the connection is closed
			}
			s.calls.Lock()
			defer s.calls.Unlock()
			_ = s.channel.Close()
		})
	}
}
