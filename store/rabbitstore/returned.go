package rabbitstore

import "time"

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
