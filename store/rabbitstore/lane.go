package rabbitstore

import (
	"container/heap"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/store"
)

// lane is one duetime queue as this process sees it: the messages that it has in
// hand, and those who wait for them. There is one for each queue that was ever
// claimed from.
type lane struct {
	store *Store
	queue string

	// returning is held while leases that ran out are given back, so that a claim
	// sees them.
	returning sync.Mutex

	mu       sync.Mutex
	held     entries           // received and not handed out, by due time
	leases   map[uint64]*lease // by token
	ends     ends              // when they end
	waiters  []*waiter
	getter   *source // of claims that do not wait; nil: to be opened
	used     time.Time
	taps     []*tap
	claiming int           // claims that are fetching
	pumping  bool          // the pump runs
	absent   time.Time     // when to look again for a queue that is not there
	kick     chan struct{} // wakes it; has room for one
}

// entry is a message in hand that nobody has a lease of.
type entry struct {
	src  *source
	tap  *tap // nil where it was not sent but fetched
	tag  uint64
	seq  uint64
	task store.Task
	at   time.Time // when it came
}

// entries is a heap: oldest due first, then first come.
type entries []*entry

func (e entries) Len() int { return len(e) }
func (e entries) Less(i, j int) bool {
	if c := e[i].task.Due.Compare(e[j].task.Due); c != 0 {
		return c < 0
	}
	return e[i].seq < e[j].seq
}
func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(x any)   { *e = append(*e, x.(*entry)) }
func (e *entries) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return last
}

func (s *Store) lane(queue string) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[queue]
	if l == nil {
		l = &lane{store: s, queue: queue, leases: make(map[uint64]*lease), kick: make(chan struct{}, 1)}
		s.lanes[queue] = l
	}
	return l
}

// existing is nil where this process has never claimed from the queue.
func (s *Store) existing(queue string) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lanes[queue]
}

func (s *Store) allLanes() []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*lane, 0, len(s.lanes))
	for _, l := range s.lanes {
		all = append(all, l)
	}
	return all
}

// received sorts a message into what it is: a task to be held until it is due
// and somebody wants it, or one that must go another way first. Under mu.
func (l *lane) received(src *source, t *tap, d *amqp.Delivery, now time.Time) (back *returned) {
	src.unacked++
	if t != nil {
		t.inHand++
	}
	e := &entry{src: src, tap: t, tag: d.DeliveryTag, seq: l.store.seq.Add(1), at: now}
	var err error
	e.task, err = decode(l.queue, d)
	switch {
	case err != nil:
		e.task = adopt(l.queue, d, err, now)
		return &returned{entry: e, dead: true}
	case d.Redelivered:
		// Whoever had it before died with it, or lost its connection. A quorum
		// queue counts how often. Otherwise the count has to be in the message
		// before anybody else gets it, or a task that kills its workers would
		// never be counted out.
		n, counted := deliveries(d)
		if !counted || n >= recount {
			e.task.Lost += max(n, 1) - 1
			return l.lost(e)
		}
		e.task.Lost += n - 1
		if r := l.lost(e); r.dead {
			return r
		}
	case e.task.Due.Sub(now) > astray:
		return &returned{entry: e, walk: true}
	}
	heap.Push(&l.held, e)
	return nil
}

// recount is from how many lost deliveries on a message is published anew, with
// the count as its own: RabbitMQ 4 throws away what it has delivered 20 times.
const recount = 10

// deliveries is how often a quorum queue has got a message back.
func deliveries(d *amqp.Delivery) (n int, counted bool) {
	switch v := d.Headers["x-delivery-count"].(type) {
	case int64:
		n = int(v)
	case int32:
		n = int(v)
	case int16:
		n = int(v)
	case int8:
		n = int(v)
	case byte:
		n = int(v)
	}
	return n, n > 0
}

// closed forgets what came from a channel that is gone: the broker has it back.
func (l *lane) closed(src *source, why *amqp.Error) {
	l.mu.Lock()
	src.closed = true
	if l.getter == src {
		l.getter = nil
	}
	kept := l.held[:0]
	for _, e := range l.held {
		if e.src != src {
			kept = append(kept, e)
		}
	}
	clear(l.held[len(kept):])
	l.held = kept
	heap.Init(&l.held)
	lost := 0
	for token, held := range l.leases {
		if held.src == src {
			delete(l.leases, token)
			lost++
		}
	}
	for i, t := range l.taps {
		if t.src == src {
			l.taps = append(l.taps[:i:i], l.taps[i+1:]...)
			break
		}
	}
	l.mu.Unlock()
	if lost > 0 && l.store.ctx.Err() == nil {
		var err error = why
		if why == nil {
			err = errors.New("the channel was closed")
		}
		l.store.logger.Warn("duetime: leases were lost with the connection to RabbitMQ, which hands their tasks out again", "queue", l.queue, "leases", lost, "error", err)
	}
	l.wakePump()
}

func (l *lane) wakePump() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// appeared says that there is a queue now where perhaps there was none.
func (l *lane) appeared() {
	l.mu.Lock()
	l.absent = time.Time{}
	l.mu.Unlock()
	l.wakePump()
}
