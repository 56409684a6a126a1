package redisstore

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/duetime/duetime/internal/backoff"
	"github.com/duetime/duetime/store"
)

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	if err := store.CheckBatch(len(settlements)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	results := make([]store.Result, len(settlements))
	parts := make([]store.ReceiptParts, len(settlements))
	now := s.now()
	good := func(i int) string {
		m := &settlements[i]
		var err error
		if parts[i], err = m.Receipt.Parse(); err == nil {
			err = m.Check(now)
		}
		if results[i].Err = err; err != nil {
			return ""
		}
		results[i].Outcome = store.Stale
		if store.CheckKey(parts[i].Queue, parts[i].ID) != nil {
			return ""
		}
		return parts[i].Queue
	}
	err := perQueue(len(settlements), good, func(queue string, items []int) error {
		b := &settling{s: s, ctx: ctx, queue: queue, settlements: settlements, parts: parts, results: results}
		return b.run(items)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// settling is the settlements of one call for one queue.
type settling struct {
	s           *Store
	ctx         context.Context
	queue       string
	settlements []store.Settlement
	parts       []store.ReceiptParts
	results     []store.Result
}

func (b *settling) run(items []int) error {
	for tries := 0; len(items) > 0; tries++ {
		k, err := b.s.know(b.ctx, b.queue)
		if err != nil {
			return err
		}
		if k == nil {
			return nil // stale, all of them
		}
		if tries > 2 {
			if err := sleep(b.ctx, time.Duration(min(tries, 50))*time.Millisecond); err != nil {
				return err
			}
		}
		calls, targets, strangers := b.split(k, items)
		if len(strangers) > 0 && tries == 0 {
			// Perhaps of a layout that came after the one known here.
			if _, err := b.s.reload(b.ctx, b.queue); err != nil {
				return err
			}
			continue
		}
		replies, err := b.s.run(b.ctx, calls)
		if err != nil {
			return err
		}
		var again []int
		var touched, acked []call
		woke := false
		for c := range replies {
			r := &replies[c]
			err := r.check()
			if err == errLayout {
				if err := b.s.relearn(b.ctx, b.queue); err != nil {
					return err
				}
				again = append(again, targets[c]...)
				continue
			} else if err != nil {
				return err
			}
			if word := r.text(0); word == "settings" {
				if err := b.outdated(k, calls[c].shard, r); err != nil {
					return err
				}
				again = append(again, targets[c]...)
				continue
			}
			b.s.sawClock(r.now())
			woke = woke || r.woke()
			for _, i := range targets[c] {
				b.results[i].Outcome = store.Acked // unless it says otherwise
			}
			if len(r.values) > 3 {
				touched = append(touched, calls[c])
			} else {
				acked = append(acked, calls[c])
			}
			for v := 3; v+2 < len(r.values); v += 3 {
				if i := targets[c][r.number(v)-1]; !b.answer(i, r.number(v+1), r.number(v+2), r.now()) {
					again = append(again, i)
				}
			}
		}
		b.s.acked(b.queue, k, acked)
		b.s.touched(b.queue, k, touched)
		if woke {
			b.s.woke(b.ctx, b.queue, k)
		}
		items = again
	}
	return nil
}

// outdated puts right that a shard and this process know different settings.
func (b *settling) outdated(k *known, sh *shard, r *reply) error {
	version, _ := strconv.ParseInt(r.text(1), 10, 64)
	fresh, err := b.s.reload(b.ctx, b.queue)
	if err != nil || fresh == nil {
		return err
	}
	if fresh.settings.Version > version {
		return b.s.pushSettings(b.ctx, b.queue, fresh, []*shard{sh})
	}
	return nil
}

// split makes the calls. Items whose shard is in no known layout are returned
// apart.
func (b *settling) split(k *known, items []int) (calls []call, targets [][]int, strangers []int) {
	var order []*shard
	parts := make(map[*shard][]int, 1)
	for _, i := range items {
		sh := k.numbered(b.parts[i].Shard)
		if sh == nil {
			strangers = append(strangers, i)
			continue
		}
		if parts[sh] == nil {
			order = append(order, sh)
		}
		parts[sh] = append(parts[sh], i)
	}
	for _, sh := range order {
		for rest := parts[sh]; len(rest) > 0; {
			n := min(len(rest), sliceItems)
			args := make([]string, 1, 1+2*n)
			for _, i := range rest[:n] {
				if m := &b.settlements[i]; m.Action == store.Retry && m.Backoff {
					args[0] = strconv.FormatInt(k.settings.Version, 10)
				}
				args = append(args, b.parts[i].ID, b.spec(k, i))
			}
			calls = append(calls, call{b.s.scripts().settle, sh, args})
			targets = append(targets, rest[:n])
			rest = rest[n:]
		}
	}
	return calls, targets, strangers
}

// spec says what to do with a lease; see lua/settle.lua.
func (b *settling) spec(k *known, i int) string {
	m := &b.settlements[i]
	t := binary.BigEndian.AppendUint64(make([]byte, 0, 32), b.parts[i].Token)
	switch m.Action {
	case store.Ack:
		t = append(t, 'a')
	case store.Release:
		t = append(t, 'e')
	case store.Bury:
		t = append(append(t, 'b'), store.CleanError(m.Error)...)
	case store.Snooze:
		t = append(append(t, "s+"...), duration(m.Delay)...)
	case store.Extend:
		t = append(t, 'x')
		if m.Lease > 0 {
			t = append(t, duration(m.Lease)...)
		}
	case store.Retry:
		delay := m.Delay
		if m.Backoff {
			delay = backoff.Delay(k.settings.Backoff, int(b.parts[i].Attempt), rand.Float64)
			t = append(t, "R+"...)
		} else {
			t = append(t, "r+"...)
		}
		t = append(append(t, duration(delay)...), ';')
		t = append(t, store.CleanError(m.Error)...)
	}
	return string(t)
}

// answer reads what became of one; false: ask again.
func (b *settling) answer(i int, code, at int64, now time.Time) bool {
	r := &b.results[i]
	switch code {
	case 0:
		r.Outcome = store.Stale
	case 2:
		*r = store.Result{Outcome: store.Retrying, Due: fromMilli(at)}
	case 3:
		r.Outcome = store.Dead
	case 4:
		*r = store.Result{Outcome: store.Snoozed, Due: fromMilli(at)}
	case 5:
		r.Outcome = store.Released
	case 6:
		*r = store.Result{Outcome: store.Extended, At: fromMilli(at)}
	case 7:
		_, err := store.DueTime(now, time.Time{}, b.settlements[i].Delay)
		if err == nil {
			err = store.NewInputError("delay", b.settlements[i].Delay, "ends too late")
		}
		*r = store.Result{Err: err}
	default:
		return false
	}
	return true
}
