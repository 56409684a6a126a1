package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// How many tasks are moved at a time.
const moveItems = 200

// swapLayout changes a queue's layout, if it is what the caller thinks.
const swapLayout = `
if redis.call('HGET', KEYS[1], 'layout') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'layout', ARGV[2])
if ARGV[3] then
  local sequence = tonumber(redis.call('HGET', KEYS[1], 'sequence')) or 0
  redis.call('HSET', KEYS[1], 'sequence', math.max(sequence, tonumber(ARGV[3])))
end
return 1
`

// Reshard gives a queue another number of shards, while everybody goes on
// working with it. It moves all tasks that are not leased, waits for those that
// are, and returns when all are in the new shards. progress, which may be nil, is
// told now and then how many were moved and how many are left. A call that was
// interrupted, by kill -9 too, is taken up again by the next with the same number;
// several at the same time do no harm. Meanwhile a task may go out in another order
// than that of due times, and the server needs memory for the ids that were moved.
func (s *Store) Reshard(ctx context.Context, queue string, n int, progress func(moved, left int64)) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	if err := checkShards(n); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.ops.RUnlock()
	k, err := s.reload(ctx, queue)
	switch {
	case err != nil:
		return err
	case k == nil:
		return store.NewInputError("queue", queue, "does not exist")
	case k.old != nil && len(k.shards) != n:
		return fmt.Errorf("queue %s is being moved to %d shards: finish that first", queue, len(k.shards))
	case k.old == nil && len(k.shards) == n:
		return nil
	}
	if k.old == nil {
		if k, err = s.beginMove(ctx, queue, k, n); err != nil {
			return err
		}
	}
	m := &mover{s: s, ctx: ctx, queue: queue, k: k, progress: progress}
	return m.run()
}

// beginMove writes the new layout down beside the old one.
func (s *Store) beginMove(ctx context.Context, queue string, k *known, n int) (*known, error) {
	highest := int64(0)
	counts, err := s.run(ctx, s.finishCalls(k.shards, "", "", 0))
	if err != nil {
		return nil, err
	}
	for i := range counts {
		if err := counts[i].check(); err != nil {
			return nil, err
		}
		highest = max(highest, counts[i].number(3))
	}
	text := fmt.Sprintf("%d/%d %s", k.epoch+1, n, k.text)
	// A margin, for what is scheduled by the old layout until it is fenced.
	done, err := s.client.Do(ctx, s.client.B().Eval().Script(swapLayout).Numkeys(1).Key(s.queueKey(queue)).
		Arg(k.text, text, strconv.FormatInt(highest+1_000_000, 10)).Build()).AsInt64()
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	if done == 0 {
		return nil, fmt.Errorf("queue %s: %w by somebody else: try again", queue, errLayout)
	}
	k, err = s.reload(ctx, queue)
	if err == nil && (k == nil || k.old == nil) {
		err = fmt.Errorf("queue %s: %w by somebody else: try again", queue, errLayout)
	}
	return k, err
}

// finishCalls are calls of finish.lua; with no word they only read.
func (s *Store) finishCalls(shards []*shard, word, from string, sequence int64) []call {
	calls := make([]call, len(shards))
	for i, sh := range shards {
		calls[i] = call{s.scripts().finish, sh, []string{word, from, strconv.FormatInt(sequence, 10)}}
	}
	return calls
}

// mover moves the tasks of a queue from its old shards to the new ones.
type mover struct {
	s        *Store
	ctx      context.Context
	queue    string
	k        *known
	moved    int64
	progress func(moved, left int64)
}

func (m *mover) run() error {
	from := m.from()
	if err := m.finish(m.k.shards, "begin", from); err != nil {
		return err
	}
	if err := m.s.pushSettings(m.ctx, m.queue, m.k, m.k.shards); err != nil {
		return err
	}
	if err := m.s.fence(m.ctx, m.k); err != nil {
		return err
	}
	for pause := time.Millisecond; ; {
		left, moved := int64(0), int64(0)
		for _, sh := range m.k.old.shards {
			n, rest, err := m.slice(sh)
			if err == errLayout || err == errOver {
				return m.someoneElse(err)
			} else if err != nil {
				return err
			}
			moved += n
			left += rest
		}
		if m.moved += moved; m.progress != nil {
			m.progress(m.moved, left)
		}
		if left == 0 && moved == 0 {
			break
		}
		if moved > 0 {
			pause = time.Millisecond
			continue
		}
		// What is left is leased.
		if err := sleep(m.ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
	if err := m.finish(m.k.shards, "end", from); err != nil {
		return m.someoneElse(err)
	}
	now, _, _ := strings.Cut(m.k.text, " ")
	if err := m.s.client.Do(m.ctx, m.s.client.B().Eval().Script(swapLayout).Numkeys(1).Key(m.s.queueKey(m.queue)).
		Arg(m.k.text, now).Build()).Error(); err != nil {
		return m.s.broken(m.ctx, err)
	}
	if err := m.finish(m.k.old.shards, "gone", from); err != nil && err != errLayout {
		return err
	}
	_, err := m.s.reload(m.ctx, m.queue)
	m.s.ring(m.ctx, m.queue)
	return err
}

// from is what the old layout was called.
func (m *mover) from() string {
	_, before, _ := strings.Cut(m.k.text, " ")
	return before
}

func (m *mover) finish(shards []*shard, word, from string) error {
	sequence, err := m.s.client.Do(m.ctx, m.s.client.B().Hincrby().Key(m.s.queueKey(m.queue)).Field("sequence").Increment(0).Build()).AsInt64()
	if err != nil {
		return m.s.broken(m.ctx, err)
	}
	replies, err := m.s.run(m.ctx, m.s.finishCalls(shards, word, from, sequence))
	if err != nil {
		return err
	}
	for i := range replies {
		if err := replies[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// errOver says that a move has ended.
var errOver = fmt.Errorf("the move is over")

// someoneElse is for when another process has ended the same move.
func (m *mover) someoneElse(err error) error {
	k, readErr := m.s.reload(m.ctx, m.queue)
	if readErr != nil {
		return readErr
	}
	if k != nil && k.old == nil && k.epoch == m.k.epoch {
		return nil
	}
	return err
}

// slice moves some tasks of one old shard, and says how many, and how many are
// left.
func (m *mover) slice(sh *shard) (moved, left int64, err error) {
	r, err := m.s.one(m.ctx, call{m.s.scripts().take, sh, []string{strconv.Itoa(moveItems), strconv.Itoa(sliceBytes)}})
	if err != nil {
		return 0, 0, err
	}
	left = r.number(3)
	const head = 4
	var order []*shard
	args := make(map[*shard][]string)
	var ids []string
	for v := head; v+2 < len(r.values); v += 3 {
		id := r.text(v)
		to := m.k.of(id)
		if args[to] == nil {
			order = append(order, to)
			args[to] = []string{m.from()}
		}
		args[to] = append(args[to], id, r.text(v+1), r.text(v+2))
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return 0, left, nil
	}
	var calls []call
	for _, to := range order {
		calls = append(calls, call{m.s.scripts().land, to, args[to]})
	}
	replies, err := m.s.run(m.ctx, calls)
	if err != nil {
		return 0, 0, err
	}
	woke := false
	for i := range replies {
		if replies[i].word == "over" {
			return 0, 0, errOver
		}
		if err := replies[i].check(); err != nil {
			return 0, 0, err
		}
		woke = woke || replies[i].woke()
	}
	if _, err := m.s.one(m.ctx, call{m.s.scripts().drop, sh, ids}); err != nil {
		return 0, 0, err
	}
	if woke {
		m.s.woke(m.ctx, m.queue, m.k)
	}
	return int64(len(ids)), left, nil
}
