package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/store"
)

const (
	// patience is for how long a call waits for a connection that is being made
	// again, before it says that there is none.
	patience = time.Second

	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	dialTimeout  = 10 * time.Second
)

// link is a connection that is made again whenever it is lost. A store has one to
// publish and one to receive: the broker, when it is short of memory or disk, stops
// reading from connections that publish, and acks must not be held up by that.
type link struct {
	url    string // as amqp091 takes it, with the password
	name   string // in the broker's list of connections
	where  string // for messages, without the password
	config amqp.Config

	ctx  context.Context // ends with the store
	done chan struct{}   // closed when the loop has ended

	mu      sync.Mutex
	conn    *amqp.Connection
	up      chan struct{} // closed while there is a connection
	why     error         // why there is none
	blocked string        // why the broker does not read; empty where it does
	free    chan struct{} // closed while it does
}

// newLink connects, and keeps connected until ctx ends.
func newLink(ctx context.Context, url, where, name string, config amqp.Config) (*link, error) {
	l := &link{
		url: url, where: where, name: name, config: config, ctx: ctx,
		done: make(chan struct{}), up: make(chan struct{}), free: make(chan struct{}),
	}
	close(l.free)
	closed, err := l.connect()
	if err != nil {
		return nil, err
	}
	go l.keep(closed)
	return l, nil
}

func (l *link) connect() (closed chan *amqp.Error, err error) {
	config := l.config
	config.Properties = amqp.NewConnectionProperties()
	config.Properties.SetClientConnectionName(l.name)
	conn, err := amqp.DialConfig(l.url, config)
	if err != nil {
		return nil, l.explain(err)
	}
	closed = conn.NotifyClose(make(chan *amqp.Error, 1))
	blockings := conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	l.mu.Lock()
	l.conn, l.why = conn, nil
	close(l.up)
	l.mu.Unlock()
	go func() {
		for b := range blockings {
			reason := b.Reason
			if b.Active && reason == "" {
				reason = "no reason given"
			}
			l.block(b.Active, reason)
		}
		l.block(false, "")
	}()
	return closed, nil
}

func (l *link) block(active bool, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case active && l.blocked == "":
		l.blocked, l.free = reason, make(chan struct{})
	case !active && l.blocked != "":
		l.blocked = ""
		close(l.free)
	}
}

// keep is the loop that connects again.
func (l *link) keep(closed chan *amqp.Error) {
	defer close(l.done)
	for {
		var lost *amqp.Error
		select {
		case lost = <-closed:
		case <-l.ctx.Done():
		}
		l.mu.Lock()
		conn := l.conn
		l.conn, l.up = nil, make(chan struct{})
		l.why = errors.New("the connection was closed")
		if lost != nil {
			l.why = lost
		}
		l.mu.Unlock()
		if l.ctx.Err() != nil {
			_ = conn.CloseDeadline(time.Now().Add(time.Second))
			return
		}
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			var err error
			if closed, err = l.connect(); err == nil {
				break
			}
			l.mu.Lock()
			l.why = err
			l.mu.Unlock()
			select {
			case <-time.After(pause):
			case <-l.ctx.Done():
				return
			}
		}
	}
}

// get returns the connection. Where there is none it waits a moment for one.
func (l *link) get(ctx context.Context) (*amqp.Connection, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		l.mu.Lock()
		conn, up := l.conn, l.up
		l.mu.Unlock()
		if conn != nil {
			return conn, nil
		}
		select {
		case <-up:
		case <-l.ctx.Done():
			return nil, store.ErrClosed
		case <-ctx.Done():
			return nil, l.away(ctx.Err())
		case <-timer.C:
			return nil, l.away(nil)
		}
	}
}

// away is the error of a call for which there is no connection.
func (l *link) away(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		return fmt.Errorf("no connection to RabbitMQ at %s: %w", l.where, l.why)
	}
	return fmt.Errorf("no connection to RabbitMQ at %s (%w): %w", l.where, l.why, err)
}

// unblocked waits until the broker reads what is published.
func (l *link) unblocked(ctx context.Context) error {
	for {
		l.mu.Lock()
		free, reason := l.free, l.blocked
		l.mu.Unlock()
		if reason == "" {
			return nil
		}
		select {
		case <-free:
		case <-l.ctx.Done():
			return store.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("RabbitMQ at %s takes no messages until it has room again (%s): %w: %w", l.where, reason, store.ErrFull, ctx.Err())
		}
	}
}

// stuck adds to the error of a call that waited in vain for the broker's
// confirmation that the broker does not read, where that is why.
func (l *link) stuck(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked == "" {
		return fmt.Errorf("no confirmation from RabbitMQ at %s: %w", l.where, err)
	}
	return fmt.Errorf("no confirmation from RabbitMQ at %s, which takes no messages until it has room again (%s): %w", l.where, l.blocked, err)
}

// explain makes errors of connecting speak.
func (l *link) explain(err error) error {
	var e *amqp.Error
	if errors.As(err, &e) && e.Code == amqp.AccessRefused {
		return fmt.Errorf("RabbitMQ at %s refuses the user name or the password, or the user may not use this virtual host: %w", l.where, err)
	}
	return fmt.Errorf("connect to RabbitMQ at %s: %w", l.where, err)
}
