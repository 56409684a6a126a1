package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// How much one script does at most, so that it holds up nobody for long.
const (
	sliceItems = 200
	sliceBytes = 1 << 20
)

// perQueue calls f once for each queue that the items name, with the indexes of
// its items, in order. Most calls are about one queue.
func perQueue(n int, queueOf func(i int) string, f func(queue string, items []int) error) error {
	var order []string
	items := make(map[string][]int, 1)
	for i := range n {
		name := queueOf(i)
		if name == "" { // refused before
			continue
		}
		if _, ok := items[name]; !ok {
			order = append(order, name)
			items[name] = make([]int, 0, n-i)
		}
		items[name] = append(items[name], i)
	}
	for _, name := range order {
		if err := f(name, items[name]); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what the answer for one item means for where to ask next.
type verdict int

const (
	settled   verdict = iota // it is the answer
	absent                   // not on this shard: perhaps on that of the new layout
	moving                   // on its way there: ask again
	elsewhere                // the shard takes it no more: ask in the new layout
)

// byID is an operation on tasks of one queue by their ids. Its scripts answer
// with the clock, a flag, and one value for each item.
type byID struct {
	queue  string
	script *script
	create bool     // the queue and its shards, where they are not there
	head   []string // arguments before those of the items
	// tail appends what is told of the items of one call, after head; nil: nothing.
	tail   func(args []string, items []int) []string
	id     func(i int) string
	args   func(args []string, i int) []string // appends those of an item
	bytes  func(i int) int                     // what an item weighs; nil: little
	answer func(i int, v *rueidis.RedisMessage, r *reply) verdict
	// exceptions: the script only answers for items that are not as usual, and
	// gives their places, from 1; answer gets nil for the others.
	exceptions bool
	none       func(i int) // there is no such queue, or no such task anywhere
	failed     func(i int, err error)
}

// target is a call and the items that it carries.
type target struct{ items []int }

// byID carries an operation out. While a queue is resharded an id is asked for
// where it was before, and then where it goes: tasks only ever move that way.
func (s *Store) byID(ctx context.Context, op *byID, items []int) error {
	inNew := "" // the layout in whose old part what is pending has been asked for
	makeShard := false
	pause := time.Millisecond
	for tries := 0; len(items) > 0; tries++ {
		k, err := s.know(ctx, op.queue)
		if err == nil && k == nil && op.create {
			k, err = s.register(ctx, op.queue)
		}
		if err != nil {
			if full := asFull(err); full != nil {
				for _, i := range items {
					op.failed(i, full)
				}
				return nil
			}
			return err
		}
		if k == nil {
			for _, i := range items {
				op.none(i)
			}
			return nil
		}
		g := &k.grid
		if k.old != nil && inNew != k.text {
			g = k.old
		}
		calls, targets := s.split(op, g, items, makeShard)
		replies, err := s.run(ctx, calls)
		if err != nil {
			return err
		}
		if op.script != s.scripts().get {
			s.touched(op.queue, k, calls)
		}
		var later, waiting []int
		var changed bool
		woke := false
		for c := range replies {
			r := &replies[c]
			switch err := r.check(); {
			case r.word == "new":
				if _, err := s.register(ctx, op.queue); err != nil {
					return err
				}
				makeShard = true
				waiting = append(waiting, targets[c].items...)
				continue
			case err == errLayout:
				changed = true
				waiting = append(waiting, targets[c].items...)
				continue
			case asFull(err) != nil:
				for _, i := range targets[c].items {
					op.failed(i, err)
				}
				continue
			case err != nil:
				return err
			}
			s.sawClock(r.now())
			woke = woke || r.woke()
			var answers []*rueidis.RedisMessage
			if op.exceptions {
				answers = make([]*rueidis.RedisMessage, len(targets[c].items))
				for v := 3; v+1 < len(r.values); v += 2 {
					answers[r.number(v)-1] = &r.values[v+1]
				}
			}
			for n, i := range targets[c].items {
				var v *rueidis.RedisMessage
				if op.exceptions {
					v = answers[n]
				} else {
					v = &r.values[3+n]
				}
				switch op.answer(i, v, r) {
				case absent:
					if g == k.old {
						later = append(later, i)
					} else {
						op.none(i)
					}
				case elsewhere:
					if g == k.old {
						later = append(later, i)
					} else {
						changed = true
						waiting = append(waiting, i)
					}
				case moving:
					waiting = append(waiting, i)
				}
			}
		}
		if woke {
			s.woke(ctx, op.queue, k)
		}
		if tries > 1000 {
			return fmt.Errorf("redis: %w, again and again", errLayout)
		}
		switch {
		case len(waiting) > 0:
			// Those that wait may be anywhere; all begin again in the old layout, where
			// those that were not there still are not.
			if changed || tries > 0 && !makeShard {
				if err := sleep(ctx, pause); err != nil {
					return err
				}
				pause = min(2*pause, 50*time.Millisecond)
				if err := s.relearn(ctx, op.queue); err != nil {
					return err
				}
				inNew = ""
			}
			items = merge(waiting, later)
		default:
			items, inNew = later, k.text
		}
	}
	return nil
}

// merge puts two ascending lists together.
func merge(a, b []int) []int {
	if len(b) == 0 && ascending(a) {
		return a
	}
	seen := make(map[int]bool, len(a)+len(b))
	top := 0
	for _, list := range [2][]int{a, b} {
		for _, i := range list {
			seen[i] = true
			top = max(top, i)
		}
	}
	all := make([]int, 0, len(seen))
	for i := 0; i <= top; i++ {
		if seen[i] {
			all = append(all, i)
		}
	}
	return all
}

func ascending(a []int) bool {
	for i := 1; i < len(a); i++ {
		if a[i] < a[i-1] {
			return false
		}
	}
	return true
}

// split makes the calls that carry items to their shards, in slices.
func (s *Store) split(op *byID, g *grid, items []int, makeShard bool) ([]call, []target) {
	head := op.head
	if op.create {
		flag := "0"
		if makeShard {
			flag = "1"
		}
		head = append(append([]string(nil), head...), flag)
	}
	var calls []call
	var targets []target
	emit := func(sh *shard, items []int) {
		for len(items) > 0 {
			n, bytes := 0, 0
			for n < len(items) && n < sliceItems && (n == 0 || bytes < sliceBytes) {
				if op.bytes != nil {
					bytes += op.bytes(items[n])
				}
				n++
			}
			args := make([]string, len(head), len(head)+2+3*n)
			copy(args, head)
			if op.tail != nil {
				args = op.tail(args, items[:n])
			}
			for _, i := range items[:n] {
				args = op.args(args, i)
			}
			calls = append(calls, call{op.script, sh, args})
			targets = append(targets, target{items: items[:n]})
			items = items[n:]
		}
	}
	if len(g.shards) == 1 {
		emit(g.shards[0], items)
		return calls, targets
	}
	parts := make(map[*shard][]int)
	for _, i := range items {
		sh := g.of(op.id(i))
		parts[sh] = append(parts[sh], i)
	}
	for _, sh := range g.shards {
		emit(sh, parts[sh])
	}
	return calls, targets
}
