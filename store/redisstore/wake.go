package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// ears are those in this process who wait for a queue, and what listens for
// them. Under queue.mu.
type ears struct {
	subs   map[chan struct{}]struct{}
	stop   context.CancelFunc // ends what listens; nil: nothing does
	change chan struct{}      // closed when the layout has changed
}

// moved tells what listens that the shards are others now.
func (e *ears) moved() {
	if e.change != nil {
		close(e.change)
		e.change = nil
	}
}

// Wake implements store.Store.
func (s *Store) Wake(name string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	q := s.queue(name)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ears.subs == nil {
		q.ears.subs = make(map[chan struct{}]struct{})
	}
	q.ears.subs[ch] = struct{}{}
	if q.ears.stop == nil && s.opts.Wake != WakePoll {
		ctx, cancel := context.WithCancel(s.ending)
		q.ears.stop = cancel
		s.start(func() { s.listen(ctx, q) })
	}
	return ch, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.ears.subs, ch)
		if len(q.ears.subs) == 0 && q.ears.stop != nil {
			q.ears.stop()
			q.ears.stop = nil
		}
	}
}

// tick wakes those in this process who wait for a queue.
func (s *Store) tick(name string) {
	s.mu.RLock()
	q := s.queues[name]
	s.mu.RUnlock()
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for ch := range q.ears.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// listen follows the wake-ups of a queue until ctx ends. What was missed while it
// did not hear is made up for by a tick once it hears again.
func (s *Store) listen(ctx context.Context, q *queue) {
	for ctx.Err() == nil {
		// Not with ctx: where this is the call that connects, others wait for the
		// connection with it, and would fail where ctx ends.
		k, err := s.know(s.ending, q.name)
		if err != nil {
			if sleep(ctx, time.Second) != nil {
				return
			}
			continue
		}
		if k == nil {
			k = s.unmade(q.name)
			// The first shard is a guess; whoever makes the queue may choose more.
		}
		q.mu.Lock()
		if q.ears.change == nil {
			q.ears.change = make(chan struct{})
		}
		changed := q.ears.change
		now := q.known()
		q.mu.Unlock()
		if now != nil && now.layout.text != k.layout.text {
			continue
		}
		s.listenTo(ctx, q.name, k.all(), changed)
	}
}

// listenTo hears the shards of one layout, until it changes.
func (s *Store) listenTo(ctx context.Context, queue string, shards []*shard, changed <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		switch {
		case s.how == "k":
			s.followNodes(ctx, queue, shards)
		case s.how == "s":
			each(shards, func(sh *shard) {
				s.follow(ctx, s.client, queue, s.client.B().Ssubscribe().Channel(sh.keys[wakeKey]).Build().Pin())
			})
		default:
			channels := make([]string, len(shards))
			for i, sh := range shards {
				channels[i] = sh.keys[wakeKey]
			}
			s.follow(ctx, s.client, queue, s.client.B().Subscribe().Channel(channels...).Build().Pin())
		}
	}()
	select {
	case <-ctx.Done():
	case <-changed:
		s.tick(queue)
	case <-done:
	}
	cancel()
	<-done
}

// each calls f for all shards at once and waits for all.
func each(shards []*shard, f func(*shard)) {
	done := make(chan struct{})
	for _, sh := range shards {
		go func() {
			defer func() { done <- struct{}{} }()
			f(sh)
		}()
	}
	for range shards {
		<-done
	}
}

// follow subscribes, and again whenever the connection was lost, until ctx ends.
func (s *Store) follow(ctx context.Context, client rueidis.Client, queue string, subscribe rueidis.Completed) {
	pause := 10 * time.Millisecond
	for ctx.Err() == nil {
		heard := rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
			if strings.HasSuffix(sub.Kind, "subscribe") && !strings.Contains(sub.Kind, "unsub") {
				pause = 10 * time.Millisecond
				s.counts.subscribed.Add(1)
				s.tick(queue) // what happened before this was not heard
			}
		})
		_ = client.Receive(heard, subscribe, func(m rueidis.PubSubMessage) {
			if m.Message != *s.origin.Load() {
				s.counts.heard.Add(1)
				s.tick(queue)
			}
		})
		if sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, time.Second)
	}
}

// followNodes hears of the alarm keys of shards on every node there is: such
// events stay on the node where they happen.
func (s *Store) followNodes(ctx context.Context, queue string, shards []*shard) {
	channels := make([]string, len(shards))
	for i, sh := range shards {
		channels[i] = fmt.Sprintf("__keyspace@%d__:%s", s.opts.DB, sh.keys[wakeKey])
	}
	if !s.opts.Cluster {
		s.follow(ctx, s.client, queue, s.client.B().Subscribe().Channel(channels...).Build().Pin())
		return
	}
	following := make(map[string]context.CancelFunc)
	for {
		nodes := s.client.Nodes()
		for addr, stop := range following {
			if nodes[addr] == nil {
				stop()
				delete(following, addr)
			}
		}
		for addr, node := range nodes {
			if following[addr] == nil {
				nodeCtx, stop := context.WithCancel(ctx)
				following[addr] = stop
				s.start(func() {
					s.follow(nodeCtx, node, queue, node.B().Subscribe().Channel(channels...).Build().Pin())
				})
			}
		}
		if sleep(ctx, refreshTopology) != nil {
			return
		}
	}
}
