package redisstore

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const numKeys = 9

// shard is one part of a queue: nine keys with one hash tag.
type shard struct {
	number uint32 // unique in the queue over all layouts; receipts carry it
	layout string // which layout it belongs to
	keys   [numKeys]string
}

const wakeKey = numKeys - 1 // the channel, or the alarm key

// grid is a number of shards over which a queue's tasks lie.
type grid struct {
	epoch  int // from 1; each Reshard begins a new one
	shards []*shard
}

// layout is where a queue's tasks are: in one grid, and while it is resharded in
// the old one too.
type layout struct {
	text string // as it is stored: "2/16", or "2/16 1/4" while moving from the second
	grid
	old *grid // nil, or where tasks may still be that are not in the new one
}

const maxEpoch = 1 << 20

func (s *Store) parseLayout(queue, text string) (*layout, error) {
	l := &layout{text: text}
	now, before, moving := strings.Cut(text, " ")
	g, err := s.parseGrid(queue, now, now)
	if err != nil {
		return nil, err
	}
	l.grid = *g
	if moving {
		if l.old, err = s.parseGrid(queue, before, before+">"+now); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// parseGrid makes the shards of a grid, which call their layout name.
func (s *Store) parseGrid(queue, text, name string) (*grid, error) {
	epochText, countText, _ := strings.Cut(text, "/")
	epoch, err1 := strconv.Atoi(epochText)
	count, err2 := strconv.Atoi(countText)
	if err1 != nil || err2 != nil || epoch < 1 || epoch > maxEpoch || count < 1 || count > maxShards {
		return nil, fmt.Errorf("queue %q: %q is no layout: was %s written by something else?", queue, text, s.queueKey(queue))
	}
	g := &grid{epoch: epoch}
	for k := range count {
		g.shards = append(g.shards, s.newShard(queue, name, epoch, k))
	}
	return g, nil
}

func (s *Store) newShard(queue, layout string, epoch, k int) *shard {
	sh := &shard{number: uint32(epoch)*maxShards + uint32(k), layout: layout}
	tag := fmt.Sprintf("%s:{%s/%d.%d}:", s.opts.Prefix, queue, epoch, k)
	for i, name := range [numKeys]string{"meta", "tasks", "due", "leases", "ends", "dead", "moving", "aside", "wake"} {
		sh.keys[i] = tag + name
	}
	return sh
}

// of is the shard of an id.
func (g *grid) of(id string) *shard {
	if len(g.shards) == 1 {
		return g.shards[0]
	}
	return g.shards[crc32.ChecksumIEEE([]byte(id))%uint32(len(g.shards))]
}

// numbered is the shard with a number, nil where the layout has none such.
func (l *layout) numbered(n uint32) *shard {
	for _, g := range []*grid{&l.grid, l.old} {
		if g == nil {
			continue
		}
		if k := int(n) - g.epoch*maxShards; k >= 0 && k < len(g.shards) {
			return g.shards[k]
		}
	}
	return nil
}

// all are the shards where tasks may be.
func (l *layout) all() []*shard {
	if l.old == nil {
		return l.shards
	}
	return append(append([]*shard(nil), l.old.shards...), l.shards...)
}

// queueKey is the hash that says what a queue is: its layout, its settings, and
// the sequence of all its shards together.
func (s *Store) queueKey(queue string) string { return s.opts.Prefix + ":{" + queue + "}:queue" }

// registryKey is the set of all queues' names.
func (s *Store) registryKey() string { return s.opts.Prefix + ":queues" }
