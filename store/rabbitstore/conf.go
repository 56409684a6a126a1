package rabbitstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// conf is what all who use the store have in common beside tasks: the names of
// queues and their settings. It is kept in a stream, RabbitMQ's log that everybody
// reads from the beginning and nobody empties. Names are noted in it, and changes
// of settings are proposed: one that names the version before it is accepted, one
// that does not is passed over. All read the same log in the same order, so all
// agree on which was accepted, and he who proposed it learns it by reading on.
type conf struct {
	store *Store

	mu     sync.Mutex
	queues map[string]*queueConf
	next   int64                 // the offset to be read next
	read   chan struct{}         // closed, and made anew, whenever something was read
	mine   map[string]chan error // who waits for his own note, by nonce
}

// queueConf is a queue's settings. It is not changed once it is made.
type queueConf struct {
	settings store.Settings
	release  *release.Schedule
}

// letOut: what is due then or before may be handed out now.
func (c *queueConf) letOut(now time.Time) time.Time { return c.release.Last(now) }

// note is a message of the log.
type note struct {
	Queue    string          `json:"queue"`              // empty in the first note of a log, which says nothing
	Settings *store.Settings `json:"settings,omitempty"` // with the version that they replace
}

// logCatchUp is for how long Open waits until it has read the log.
const logCatchUp = 10 * time.Second

func newConf(s *Store) *conf {
	return &conf{store: s, queues: make(map[string]*queueConf), read: make(chan struct{}), mine: make(map[string]chan error)}
}

func defaultConf() *queueConf {
	s := store.DefaultSettings()
	r, err := release.Parse(s.Release)
	if err != nil {
		panic("rabbitstore: the default settings are wrong: " + err.Error())
	}
	return &queueConf{settings: s, release: r}
}

// of is a queue's settings as this process knows them, which is a moment behind
// at most.
func (c *conf) of(queue string) *queueConf {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[queue]; q != nil {
		return q
	}
	return c.store.unset
}

func (c *conf) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.queues))
}

// open declares the log, follows it, and returns when it was read up to now.
func (c *conf) open(ctx context.Context) error {
	t := c.store.topology
	name := t.log()
	_, was, err := t.depth(ctx, name)
	if err != nil {
		return err
	}
	err = t.withChannel(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "stream"})
		return err
	})
	if err != nil {
		if _, there, e := t.depth(ctx, name); e != nil || !there {
			return explainDeclare(err, name, "stream")
		}
	}
	c.store.work.Go(c.follow)
	ctx, cancel := context.WithTimeout(ctx, logCatchUp)
	defer cancel()
	var end int64
	if was {
		end, err = c.end(ctx)
	} else {
		end, err = 0, c.begin(ctx)
	}
	for err == nil && c.offset() <= end {
		c.mu.Lock()
		read := c.read
		c.mu.Unlock()
		if c.offset() > end {
			break
		}
		select {
		case <-read:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if isCode(err, amqp.AccessRefused) {
		return explainDeclare(err, name, "stream")
	}
	if err != nil {
		return fmt.Errorf("read the settings from RabbitMQ's stream %s: %w", name, err)
	}
	return nil
}

const (
	// logEmpty is after how long a log that sends nothing is taken to be empty.
	// Since that can not be told for sure, it gets a first note then.
	logEmpty = 300 * time.Millisecond
	// logQuiet is after how long without more the end of the log is reached.
	logQuiet = 10 * time.Millisecond
)

// end is the offset of the last note. RabbitMQ does not tell it (what it says of a
// stream's length is seconds old), but sends the last notes to a consumer who asks
// for them, several if they were written together.
func (c *conf) end(ctx context.Context) (int64, error) {
	var last atomic.Int64
	last.Store(-1)
	err := c.store.topology.withChannel(ctx, func(ch *amqp.Channel) error {
		if err := ch.Qos(1000, 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(c.store.topology.log(), "", false, false, false, false, amqp.Table{"x-stream-offset": "last"})
		if err != nil {
			return err
		}
		wait := logEmpty
		for {
			select {
			case d, ok := <-deliveries:
				if !ok {
					return errors.New("the consumer ended")
				}
				if offset, ok := d.Headers["x-stream-offset"].(int64); ok {
					last.Store(max(last.Load(), offset))
				}
				if err := d.Ack(false); err != nil {
					return err
				}
				wait = logQuiet
			case <-time.After(wait):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if err == nil && last.Load() < 0 {
		err = c.begin(ctx)
	}
	return last.Load(), err
}

// begin writes the first note of a log.
func (c *conf) begin(ctx context.Context) error {
	if err := c.write(ctx, note{}); !errors.As(err, new(*store.InputError)) {
		return err
	}
	return nil // there is no queue without a name; it was read
}

// follow reads the log for as long as the store is open.
func (c *conf) follow() {
	for pause := firstPause; c.store.base.Err() == nil; pause = min(2*pause, longestPause) {
		before := c.offset()
		if err := c.followOnce(); err != nil && c.store.base.Err() == nil && !isAway(err) {
			c.store.logger.Debug("duetime: reading settings from RabbitMQ was interrupted", "error", err)
		}
		if c.offset() > before {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-c.store.base.Done():
		}
	}
}

func (c *conf) offset() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

func (c *conf) followOnce() error {
	conn, err := c.store.receiving.get(c.store.base)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	if err := ch.Qos(1000, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(c.store.topology.log(), "", false, false, false, false, amqp.Table{"x-stream-offset": c.offset()})
	if err != nil {
		return err
	}
	for d := range deliveries {
		offset, ok := d.Headers["x-stream-offset"].(int64)
		if ok && offset >= c.offset() { // a stream may begin a little before the offset asked for
			c.fold(offset, &d)
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return errors.New("the consumer ended")
}

// fold takes in a note of the log.
func (c *conf) fold(offset int64, d *amqp.Delivery) {
	var n note
	err := json.Unmarshal(d.Body, &n)
	if err == nil {
		err = store.CheckQueue(n.Queue)
	}
	var made *queueConf
	if err == nil {
		made, err = c.apply(&n)
	}
	c.mu.Lock()
	c.next = offset + 1
	if made != nil {
		c.queues[n.Queue] = made
	}
	waiter := c.mine[d.MessageId]
	delete(c.mine, d.MessageId)
	close(c.read)
	c.read = make(chan struct{})
	c.mu.Unlock()
	if waiter != nil {
		waiter <- err
	}
	if made == nil {
		return
	}
	if n.Settings != nil {
		c.store.wakers.tick(n.Queue)
	}
	if l := c.store.existing(n.Queue); l != nil {
		l.appeared()
	}
}

func (c *conf) apply(n *note) (*queueConf, error) {
	c.mu.Lock()
	q := c.queues[n.Queue]
	c.mu.Unlock()
	if n.Settings == nil {
		if q == nil {
			q = c.store.unset
		}
		return q, nil
	}
	var version int64
	if q != nil {
		version = q.settings.Version
	}
	if n.Settings.Version != version {
		return nil, store.ErrVersion
	}
	made := &queueConf{settings: *n.Settings}
	made.settings.Version++
	if err := made.settings.Check(); err != nil {
		return nil, err
	}
	var err error
	made.release, err = release.Parse(made.settings.Release)
	return made, err
}

// name notes a queue's name, if it is not known yet.
func (c *conf) name(ctx context.Context, queue string) error {
	c.mu.Lock()
	known := c.queues[queue] != nil
	c.mu.Unlock()
	if known {
		return nil
	}
	return c.write(ctx, note{Queue: queue})
}

// write adds a note to the log and returns when it was read: what became of it.
func (c *conf) write(ctx context.Context, n note) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	nonce := strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
	done := make(chan error, 1)
	c.mu.Lock()
	c.mine[nonce] = done
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.mine, nonce)
		c.mu.Unlock()
	}()
	l := &letter{key: c.store.topology.log(), message: amqp.Publishing{
		ContentType: "application/json", DeliveryMode: amqp.Persistent, MessageId: nonce, Body: body,
	}}
	if err := c.store.publisher.send(ctx, []*letter{l}); err != nil {
		return err
	}
	if l.err != nil {
		return fmt.Errorf("write to RabbitMQ's stream %s: %w", l.key, l.err)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.store.base.Done():
		return store.ErrClosed
	}
}

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, queue string) (store.Settings, error) {
	if err := store.CheckQueue(queue); err != nil {
		return store.Settings{}, err
	}
	if err := s.begin(ctx, 0); err != nil {
		return store.Settings{}, err
	}
	defer s.end()
	return s.conf.of(queue).settings, nil
}

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, queue string, settings store.Settings) (store.Settings, error) {
	if err := store.CheckQueue(queue); err != nil {
		return store.Settings{}, err
	}
	if err := settings.Check(); err != nil {
		return store.Settings{}, err
	}
	if _, err := release.Parse(settings.Release); err != nil {
		return store.Settings{}, err
	}
	if err := s.begin(ctx, 0); err != nil {
		return store.Settings{}, err
	}
	defer s.end()
	if err := s.conf.write(ctx, note{Queue: queue, Settings: &settings}); err != nil {
		return store.Settings{}, fmt.Errorf("settings of %q: %w", queue, err)
	}
	settings.Version++
	return settings, nil
}
