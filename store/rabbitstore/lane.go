package rabbitstore

import (
	"cmp"
	"container/heap"
	"errors"
	"slices"
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

// lease is a message in somebody's hands.
type lease struct {
	entry
	until time.Time
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

// returned is a message that goes back to the broker as another one: published
// first and acked then, so that a crash in between doubles it and never loses it.
type returned struct {
	*entry
	dead bool // to the dead
	walk bool // up the ladder until it is due; else to those that are ready
}

// lost counts a task that was lost by whoever had it.
func (l *lane) lost(e *entry) *returned {
	e.task.Lost++
	r := &returned{entry: e}
	if e.task.Lost >= l.store.conf.of(l.queue).settings.MaxLost {
		r.dead, e.task.LastError = true, "lease expired"
	}
	return r
}

func (l *lane) letterOf(r *returned) *letter {
	switch {
	case r.dead:
		return &letter{key: l.store.topology.dead(l.queue), message: encode(&r.task)}
	case r.walk:
		return l.store.letter(&r.task, r.task.Due.Sub(l.store.now()))
	}
	return &letter{key: l.store.topology.ready(l.queue), message: encode(&r.task)}
}

// giveBack publishes what is to go back and acks it. What was published is no
// longer in hand, whatever the error; what was not is in the second result.
func (l *lane) giveBack(list []*returned) (left []*returned, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	letters := make([]*letter, len(list))
	for i, r := range list {
		letters[i] = l.letterOf(r)
	}
	ctx, cancel := l.store.callContext()
	defer cancel()
	if err := l.store.deliver(ctx, l.queue, letters); err != nil {
		return list, err
	}
	acks := make(map[*source][]uint64)
	for i, r := range list {
		if letters[i].err != nil {
			left, err = append(left, r), letters[i].err
			continue
		}
		acks[r.src] = append(acks[r.src], r.tag)
	}
	for src, tags := range acks {
		// Where that fails the channel is gone, and they come again, counted as
		// lost.
		if e := src.ack(tags); e == nil {
			_ = src.barrier()
		}
	}
	l.mu.Lock()
	for i, r := range list {
		if letters[i].err == nil {
			l.drop(r.entry)
		}
	}
	l.mu.Unlock()
	return left, err
}

// drop notes that a message is out of our hands. Under mu.
func (l *lane) drop(e *entry) {
	if e.tap != nil {
		e.tap.inHand--
	}
	e.src.settled()
}

// insist gives back until it has succeeded, the channel is gone, or the store is
// closed.
func (l *lane) insist(list []*returned) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		list, _ = l.giveBack(list)
		l.mu.Lock()
		kept := list[:0]
		for _, r := range list {
			if !r.src.closed {
				kept = append(kept, r)
			}
		}
		list = kept
		l.mu.Unlock()
		if len(list) == 0 {
			l.wakePump()
			return
		}
		select {
		case <-time.After(pause):
		case <-l.store.ctx.Done():
			return
		}
	}
}

// expired takes out the leases that are over. Under mu.
func (l *lane) expired(now time.Time) []*returned {
	var over []*returned
	for {
		token, until := l.nextEnd()
		if until.IsZero() || until.After(now) {
			break
		}
		held := l.leases[token]
		delete(l.leases, token)
		over = append(over, l.lost(&held.entry))
	}
	slices.SortFunc(over, func(a, b *returned) int {
		return cmp.Or(a.task.Due.Compare(b.task.Due), cmp.Compare(a.seq, b.seq))
	})
	return over
}

// expire ends the leases that are over, and returns when their tasks are back.
func (l *lane) expire(now time.Time) error {
	l.returning.Lock()
	return l.expireLocked(now)
}

func (l *lane) expireLocked(now time.Time) error {
	l.mu.Lock()
	over := l.expired(now)
	l.mu.Unlock()
	left, err := l.giveBack(over)
	l.returning.Unlock()
	if len(left) > 0 {
		l.store.work.Go(func() { l.insist(left) })
	}
	if len(over) > 0 {
		l.wakePump()
	}
	return err
}

// expireSoon is expire for those who can not wait. It is false where another is
// at it.
func (l *lane) expireSoon(now time.Time) bool {
	if !l.returning.TryLock() {
		return false
	}
	l.mu.Lock()
	_, until := l.nextEnd()
	l.mu.Unlock()
	if until.IsZero() || until.After(now) {
		l.returning.Unlock()
		return true
	}
	l.store.work.Go(func() { _ = l.expireLocked(now) })
	return false
}

// end is when a lease ends; one that was extended has several, of which the one
// that its lease names is true.
type end struct {
	until time.Time
	token uint64
}

// ends is a heap.
type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// nextEnd is the lease that ends next, and when; zero where there is none. Under
// mu.
func (l *lane) nextEnd() (token uint64, until time.Time) {
	for len(l.ends) > 0 {
		first := l.ends[0]
		if held := l.leases[first.token]; held != nil && held.until.Equal(first.until) {
			return first.token, first.until
		}
		heap.Pop(&l.ends)
	}
	return 0, time.Time{}
}

// endsAt sets the end of a lease. Under mu.
func (l *lane) endsAt(token uint64, until time.Time) {
	l.leases[token].until = until
	heap.Push(&l.ends, end{until, token})
}

// hand makes leases of entries for a request.
func (l *lane) hand(e *entry, r *store.ClaimRequest, now time.Time, conf *queueConf) store.Lease {
	t := e.task
	t.State, t.Worker = store.StateLeased, store.CleanWorker(r.Worker)
	token := l.store.token.Add(1)
	t.LeaseUntil = store.CeilMilli(now.Add(cmp.Or(r.Lease, conf.settings.Lease)))
	l.leases[token] = &lease{entry: *e}
	l.endsAt(token, t.LeaseUntil)
	receipt := store.ReceiptParts{Queue: t.Queue, ID: t.ID, Attempt: uint32(t.Attempt()), Token: token}
	return store.Lease{Task: t, Receipt: receipt.Encode(), ClaimedAt: now.UTC()}
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
