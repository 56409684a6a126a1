package mysqlstore

import (
	"context"
)

// mark is from where a queue's tasks have to be looked for: nothing that waits, and
// no end of a lease, lies before it. What lies there is rows that are gone but that
// the server has not cleaned away yet, which may be very many.
type mark struct {
	moment
	pos              pos
	lease            int64
	early, earlyEnds int64
	rows             int // of the tally
}

func (m *mark) start() pos {
	if early := (pos{at: m.early}); early.less(m.pos) {
		return early
	}
	return m.pos
}

// stale reports whether the tally should be tidied: its early marks make claims
// begin before they need to, or it has many rows of users' transactions.
func (m *mark) stale() bool {
	return (pos{at: m.early}).less(m.pos) || m.earlyEnds < m.lease || m.rows > shards+foldFrom
}

func (m *mark) leaseStart() int64 { return min(m.lease, m.earlyEnds) }

// mark adds the statements that read a queue's mark. Unlocked, the tally is read
// before the turn: what a claim takes over from the one to the other in between is then
// seen in both, where the other way round it would be seen in neither.
func (l *link) mark(id uint32, lock bool, m *mark) []func(values) error {
	m.early, m.earlyEnds = never, never
	turn := func(v values) error {
		m.pos, m.lease = pos{v.int(0), v.uint(1)}, v.int(2)
		return nil
	}
	tally := func(v values) error {
		if v[0] != nil {
			m.early, m.earlyEnds, m.rows = v.int(0), v.int(1), int(v.int(2))
		}
		return nil
	}
	if lock {
		l.add("turn_lock", id)
		l.add("tally_early", id)
		return []func(values) error{turn, tally}
	}
	l.add("tally_early", id)
	l.add("turn_read", id)
	return []func(values) error{tally, turn}
}

func minPos(a, b pos) pos {
	if b.less(a) {
		return b
	}
	return a
}

// head is what comes first in a queue, and where it was looked for.
type head struct {
	mark
	waiting pos   // of the first task that waits; never
	leased  int64 // the first end of a lease; never
}

// heads looks, without locking anything, at what comes first in queues.
func (s *Store) heads(ctx context.Context, queues []*queue) (views map[uint32]*view, heads []head, err error) {
	err = s.with(ctx, func(ctx context.Context, l *link) error {
		views, heads = make(map[uint32]*view, len(queues)), make([]head, len(queues))
		var answers []func(values) error
		ids := make([]uint32, len(queues))
		for i, q := range queues {
			ids[i] = q.id
			heads[i] = head{waiting: pos{at: never}, leased: never}
			answers = append(answers, l.mark(q.id, false, &heads[i].mark)...)
		}
		l.add("queue_read", ids)
		l.clock()
		if err := l.send(ctx, append(answers, s.views(views), l.tell)...); err != nil {
			return err
		}
		answers = answers[:0]
		for i, q := range queues {
			h := &heads[i]
			from := h.start()
			l.add("waiting_from", q.id, from.at, from.at, from.seq, 1)
			l.add("leased_from", q.id, h.leaseStart())
			answers = append(answers,
				func(v values) error { h.waiting = pos{v.int(0), v.uint(1)}; return nil },
				func(v values) error { h.leased = v.int(0); return nil })
		}
		for i := range heads {
			heads[i].moment = l.moment
		}
		return l.send(ctx, answers...)
	})
	return views, heads, err
}
