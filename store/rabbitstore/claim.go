package rabbitstore

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/store"
)

// early is how many messages that are not due yet a claim passes by at most, in
// search of one that is. They stay in hand, and are due within a moment.
const early = 64

const (
	// burst is from how many tasks on a claim has them sent, rather than asks for
	// each: an answer takes as long as a dozen messages that come at once.
	burst = 16
	// burstPause is for how long it waits for the next of them.
	burstPause = 50 * time.Millisecond
)

// Claim implements store.Store. It takes what is ready now, one message after the
// other; whoever waits for tasks does better with ClaimWait.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := s.begin(ctx, len(requests)); err != nil {
		return nil, err
	}
	defer s.end()
	results := make([]store.ClaimResult, len(requests))
	room := store.MaxClaimBytes
	for i := range requests {
		r, result := &requests[i], &results[i]
		if result.Err = r.Check(); result.Err != nil {
			result.Now = s.now()
			continue
		}
		err := s.claim(ctx, r, result, &room)
		if err != nil && i == 0 && len(result.Tasks) == 0 {
			return nil, fmt.Errorf("claim from %q: %w", r.Queue, err)
		}
		if err != nil { // what was claimed before is better than an error
			result.Now = s.now()
			for j := i + 1; j < len(requests); j++ {
				results[j].Now, results[j].Err = result.Now, requests[j].Check()
			}
			break
		}
	}
	return results, nil
}

func (s *Store) claim(ctx context.Context, r *store.ClaimRequest, result *store.ClaimResult, room *int) error {
	conf := s.conf.of(r.Queue)
	result.Now = s.now()
	if conf.settings.Paused {
		return nil
	}
	l := s.existing(r.Queue)
	if l == nil {
		_, there, err := s.topology.depth(ctx, s.topology.ready(r.Queue))
		if err != nil || !there {
			return err
		}
		l = s.lane(r.Queue)
	}
	if err := l.expire(s.now()); err != nil {
		return err
	}
	l.mu.Lock()
	l.claiming++ // what they have fetched is not to be put back meanwhile
	l.mu.Unlock()
	more, err := l.fetch(ctx, r, conf, room)
	l.mu.Lock()
	l.claiming--
	now := s.now()
	for len(result.Tasks) < r.Max {
		e := l.due(conf.letOut(now))
		if e == nil || len(e.task.Payload) > *room && *room < store.MaxClaimBytes {
			more = more || e != nil
			break
		}
		heap.Pop(&l.held)
		*room -= len(e.task.Payload)
		result.Tasks = append(result.Tasks, l.hand(e, r, now, conf))
	}
	result.Now = now
	result.Next = l.next(conf, now, more)
	l.startPump()
	l.mu.Unlock()
	if len(result.Tasks) > 0 {
		return l.begun(r, result)
	}
	return err
}

// due is the first of those in hand that may be handed out; nil where there is
// none. Under mu.
func (l *lane) due(letOut time.Time) *entry {
	if len(l.held) == 0 || l.held[0].task.Due.After(letOut) {
		return nil
	}
	return l.held[0]
}

// next is ClaimResult.Next, as far as this process knows. Under mu.
func (l *lane) next(conf *queueConf, now time.Time, more bool) time.Time {
	if more {
		return now
	}
	_, next := l.nextEnd()
	if len(l.held) > 0 {
		if due := conf.release.Next(l.held[0].task.Due); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// fetch takes messages from the broker until there are enough in hand that are
// due, or no more. more says that it stopped before it had seen them all.
func (l *lane) fetch(ctx context.Context, r *store.ClaimRequest, conf *queueConf, room *int) (more bool, err error) {
	f := fetching{lane: l, conf: conf, max: r.Max, room: *room}
	l.mu.Lock()
	f.have = l.dueCount(conf.letOut(l.store.now()), r.Max)
	l.mu.Unlock()
	for r.Max-f.have >= burst && f.bytes <= f.room && f.passed < early {
		if got, err := f.burst(ctx); err != nil {
			return false, err
		} else if got < burst {
			break
		}
	}
	for {
		if f.have >= r.Max || f.bytes > f.room {
			return true, nil // perhaps; a claim that comes for nothing does no harm
		}
		if f.passed >= early {
			return false, nil
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if ok, err := f.one(ctx); !ok || err != nil {
			return false, err
		}
	}
}

// fetching is a fetch at work.
type fetching struct {
	*lane
	conf   *queueConf
	max    int
	room   int // bytes
	have   int // in hand and due
	bytes  int // received
	passed int // received and not due
}

// one gets one message. It is false where there is none.
func (f *fetching) one(ctx context.Context) (ok bool, err error) {
	src, err := f.getterNow(ctx)
	if err != nil {
		return false, err
	}
	d, ok, err := src.get(f.store.topology.ready(f.queue))
	switch {
	case isCode(err, amqp.NotFound):
		return false, nil // deleted by hand
	case err != nil:
		return false, fmt.Errorf("get a message: %w", err)
	case !ok:
		return false, nil
	}
	return true, f.sort(src, nil, []amqp.Delivery{d})
}

// burst receives many messages at once: it has as many sent as are there, up to
// maxPrefetch, and returns how many came.
func (f *fetching) burst(ctx context.Context) (int, error) {
	name := f.store.topology.ready(f.queue)
	src, err := f.getterNow(ctx)
	if err != nil {
		return 0, err
	}
	depth, err := src.depth(name)
	if isCode(err, amqp.NotFound) {
		return 0, nil // deleted by hand
	}
	if err != nil {
		return 0, fmt.Errorf("look at RabbitMQ's queue %s: %w", name, err)
	}
	n := min(depth, f.max-f.have, maxPrefetch)
	if n < burst {
		return 0, nil
	}
	tag := f.store.consumerTag()
	deliveries, err := src.consume(name, tag, n)
	if err != nil {
		return 0, fmt.Errorf("receive from RabbitMQ's queue %s: %w", name, err)
	}
	var got []amqp.Delivery
	bytes := 0
	timer := time.NewTimer(burstPause)
	defer timer.Stop()
	add := func(d amqp.Delivery) {
		got = append(got, d)
		bytes += len(d.Body)
		timer.Reset(burstPause)
	}
receive:
	for len(got) < n && bytes <= f.room {
		select {
		case d, ok := <-deliveries:
			if !ok {
				break receive
			}
			add(d)
		case <-timer.C: // others were faster
			break receive
		case <-ctx.Done():
			break receive
		}
	}
	_ = src.cancel(tag)
	for d := range deliveries {
		add(d)
	}
	if len(got) < n {
		// A quorum queue may have sent more after the consumer was cancelled, to
		// nobody. They come back when the channel is closed.
		f.mu.Lock()
		if f.getter == src {
			f.getter = nil
			defer func() {
				f.mu.Lock()
				src.retire()
				f.mu.Unlock()
			}()
		}
		f.mu.Unlock()
	}
	return len(got), f.sort(src, nil, got)
}

// sort takes in what was received.
func (f *fetching) sort(src *source, t *tap, list []amqp.Delivery) error {
	var back []*returned
	f.mu.Lock()
	now := f.store.now()
	for i := range list {
		d := &list[i]
		f.bytes += len(d.Body)
		if r := f.received(src, t, d, now); r != nil {
			back = append(back, r)
		} else if due, ok := d.Headers[headerDue].(int64); ok && due > f.conf.letOut(now).UnixMilli() {
			f.passed++
		} else {
			f.have++
		}
	}
	f.mu.Unlock()
	left, err := f.giveBack(back)
	if len(left) > 0 {
		f.store.work.Go(func() { f.insist(left) })
	}
	return err
}

// dueCount counts entries in hand that may be handed out, up to most. Under mu.
func (l *lane) dueCount(letOut time.Time, most int) int {
	if len(l.held) == 0 || l.held[0].task.Due.After(letOut) {
		return 0
	}
	n := 0
	for _, e := range l.held {
		if !e.task.Due.After(letOut) {
			if n++; n >= most {
				break
			}
		}
	}
	return n
}

// getterNow is the channel that claims take messages on.
func (l *lane) getterNow(ctx context.Context) (*source, error) {
	l.mu.Lock()
	src := l.getter
	l.used = l.store.now()
	l.mu.Unlock()
	if src != nil {
		return src, nil
	}
	src, err := l.openSource(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.getter != nil { // another was faster
		src.retire()
		return l.getter, nil
	}
	l.getter = src
	return src, nil
}
