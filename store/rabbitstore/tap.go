package rabbitstore

import (
	"container/heap"
	"context"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// idle is after how long what nobody wants any more is given back: messages in
	// hand, consumers that nobody waits for, channels.
	idle = time.Second
	// maxPrefetch is how many messages are had sent ahead at most, whatever is
	// asked for; the rest comes as they are settled.
	maxPrefetch = 2000
	// maxTaps is how many consumers a lane has before they are merged.
	maxTaps = 8
	// absentPause is how often a queue is looked for that is not there, besides when
	// the log says that somebody has made it.
	absentPause = 500 * time.Millisecond
)

// tap is a consumer. The broker sends it messages until prefetch of them are in
// hand, leased ones included; so while there are as many taps' messages as hands,
// none is sent for which there is no free hand.
type tap struct {
	src      *source
	tag      string
	prefetch int
	inHand   int // under lane.mu
}

// startPump has the pump run, if there is something to do. Under mu.
func (l *lane) startPump() {
	if !l.pumping && l.busy() && l.store.ctx.Err() == nil {
		l.pumping = true
		l.store.work.Go(l.pump)
	}
}

func (l *lane) busy() bool {
	return len(l.waiters) > 0 || len(l.held) > 0 || len(l.leases) > 0 || len(l.taps) > 0 || l.getter != nil
}

// pump is the goroutine that sees to it that what is due is handed out, that
// leases end, and that the broker sends as much as is wanted and no more.
func (l *lane) pump() {
	alarm := l.store.clock.NewAlarm()
	defer alarm.Stop()
	ticker := time.NewTicker(idle / 4)
	defer ticker.Stop()
	var wanted time.Time // when somebody last waited
	var tooMany time.Time
	for {
		now := l.store.now()
		watch := l.expireSoon(now)
		l.mu.Lock()
		l.serve()
		if !l.busy() {
			l.pumping = false
			l.mu.Unlock()
			return
		}
		demand, have, busy := l.demand(), 0, 0
		for _, t := range l.taps {
			have += t.prefetch
			busy += t.inHand
		}
		unclaimed := 0 // of the taps' messages in hand, those without a lease
		for _, e := range l.held {
			if e.tap != nil {
				unclaimed++
			}
		}
		// What is in hand from elsewhere serves those who wait as well.
		want := max(0, min(demand, maxPrefetch)-(len(l.held)-unclaimed)) + busy - unclaimed
		taps := len(l.taps)
		if len(l.waiters) > 0 {
			wanted = now
		}
		if have <= want || taps == 0 {
			tooMany = now
		}
		at := l.wakeAt(watch)
		tap := demand > 0 && (taps == 0 || want > have) && now.After(l.absent)
		if tap {
			l.absent = now.Add(absentPause) // before it looks, so as to miss no news
		}
		l.mu.Unlock()

		switch {
		case l.store.ctx.Err() != nil:
			return // Close sees to the rest
		case tap:
			if taps >= maxTaps {
				l.shut()
				have, want = 0, min(demand, maxPrefetch) // a moment's surplus goes back
			}
			if there, err := l.tapOff(want - have); err != nil {
				l.fail(err)
			} else if there {
				l.mu.Lock()
				l.absent = time.Time{}
				l.mu.Unlock()
			}
		case taps > 0 && (now.Sub(wanted) > idle || now.Sub(tooMany) > 2*idle):
			l.shut()
			tooMany = now
		}
		l.putBack(now)

		if at.IsZero() {
			alarm.Stop()
		} else {
			alarm.Set(at)
		}
		select {
		case <-l.kick:
		case <-alarm.C():
		case <-ticker.C:
		case <-l.store.ctx.Done():
		}
	}
}

// demand is how many tasks those who wait have hands for. Under mu.
func (l *lane) demand() int {
	if l.store.conf.of(l.queue).settings.Paused {
		return 0
	}
	n := 0
	for _, w := range l.waiters {
		n += w.request.Max
	}
	return n
}

// wakeAt is when something is to be done next: a task in hand is due, or a lease
// ends. Under mu.
func (l *lane) wakeAt(leases bool) time.Time {
	var at time.Time
	if leases { // else another sees to them
		_, at = l.nextEnd()
	}
	if len(l.held) > 0 && len(l.waiters) > 0 {
		due := l.store.conf.of(l.queue).release.Next(l.held[0].task.Due)
		if !due.IsZero() && (at.IsZero() || due.Before(at)) {
			at = due
		}
	}
	return at
}

// tapOff has the broker send up to n messages more. It is false where there is no
// such queue.
func (l *lane) tapOff(n int) (there bool, err error) {
	ctx, cancel := context.WithTimeout(l.store.ctx, patience)
	defer cancel()
	name := l.store.topology.ready(l.queue)
	src, err := l.openSource(ctx)
	if err != nil {
		return false, err
	}
	t := &tap{src: src, tag: l.store.consumerTag(), prefetch: n}
	cancelled := src.channel.NotifyCancel(make(chan string, 1))
	deliveries, err := src.consume(name, t.tag, n)
	if isCode(err, amqp.NotFound) {
		return false, nil
	}
	if err != nil {
		l.mu.Lock()
		src.retire()
		l.mu.Unlock()
		return false, fmt.Errorf("receive from RabbitMQ's queue %s: %w", name, err)
	}
	l.mu.Lock()
	l.taps = append(l.taps, t)
	l.mu.Unlock()
	l.store.work.Go(func() { l.take(t, deliveries) })
	l.store.work.Go(func() {
		if _, ok := <-cancelled; ok { // the queue was deleted, and with it what we had of it
			src.calls.Lock()
			defer src.calls.Unlock()
			_ = src.channel.Close()
		}
	})
	return true, nil
}

// take receives what a tap brings until it is shut.
func (l *lane) take(t *tap, deliveries <-chan amqp.Delivery) {
	for d := range deliveries {
		l.mu.Lock()
		back := l.received(t.src, t, &d, l.store.now())
		l.serve()
		l.mu.Unlock()
		if back != nil {
			l.store.work.Go(func() { l.insist([]*returned{back}) })
		} else {
			l.wakePump()
		}
	}
	// All that was on its way has come.
	l.mu.Lock()
	l.dropTap(t)
	t.src.retire()
	l.mu.Unlock()
	l.wakePump()
}

// consumerTag makes a name for a consumer.
func (s *Store) consumerTag() string {
	return "duetime-" + strconv.FormatUint(s.seq.Add(1), 10)
}

// dropTap takes a tap off the list. Under mu.
func (l *lane) dropTap(t *tap) {
	for i := range l.taps {
		if l.taps[i] == t {
			l.taps = append(l.taps[:i:i], l.taps[i+1:]...)
			return
		}
	}
}

// shut ends all consumers. Their channels stay open until what came on them is
// settled.
func (l *lane) shut() {
	l.mu.Lock()
	taps := l.taps
	l.taps = nil
	l.mu.Unlock()
	for _, t := range taps {
		_ = t.src.cancel(t.tag)
	}
}

// putBack gives back what is in hand and due and nobody has asked for.
func (l *lane) putBack(now time.Time) {
	l.mu.Lock()
	var list []*returned
	if l.claiming == 0 && (len(l.waiters) == 0 || l.store.conf.of(l.queue).settings.Paused) {
		kept := l.held[:0]
		for _, e := range l.held {
			if now.Sub(e.at) > idle && now.Sub(e.task.Due) > idle {
				list = append(list, &returned{entry: e})
			} else {
				kept = append(kept, e)
			}
		}
		clear(l.held[len(kept):])
		l.held = kept
		heap.Init(&l.held)
	}
	if l.getter != nil && l.getter.unacked == 0 && now.Sub(l.used) > 10*idle {
		l.getter.retire()
		l.getter = nil
	}
	l.mu.Unlock()
	if len(list) > 0 {
		l.store.work.Go(func() { l.insist(list) })
	}
}
