// Package redissource takes tasks over from a sorted set in Redis, with or without a
// hash of payloads, as programs make them by hand: see package takeover.
//
// Beside the user's keys it has four of its own, in the same slot of a cluster: a
// hash of what is on its way, what the takeover is about, a lock, and, where the
// source is kept as it is, a hash of what was taken. Every step is one script, which
// looks first whether the lock is still ours; so that a process that was taken for
// dead changes nothing any more.
package redissource

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/store"
)

// Options say what is taken over, and how it is to be read.
type Options struct {
	ZSet string // the sorted set
	Hash string // payloads by member; empty: the member is the payload too

	Unit    Unit
	Created bool          // the score is when an entry was created, not when it is due
	Delay   time.Duration // with Created: how much later it is due

	Keep bool // the source stays as it is

	// Queue and To name where tasks go, so that a takeover that was broken off is
	// not gone on with to another place.
	Queue, To string

	MaxPayload int // bytes

	LockTime time.Duration // of a process that was killed, the lock is free after it; 0: 15 s

	// Waiting is called once where the lock is another process's. May be nil.
	Waiting func()

	slice int // entries in one step, 1 to 500; tests have small ones
}

const (
	sliceEntries = 500
	sliceBytes   = 4 << 20
	firstLeft    = 10
)

// Source is a takeover.Source.
type Source struct {
	client  rueidis.Client
	opts    Options
	scripts *scripts
	token   string
	keys    keys

	skip   map[string]bool
	offset int64    // of the next entry, where entries move
	cursor uint64   // of the scan, where they are kept
	ahead  []string // members that were read and not taken yet
	last   bool     // nothing comes behind ahead
	left   int64    // since Rewind
	first  []takeover.Left

	kept time.Time // when the lock was last extended for its own sake
}

var _ takeover.Source = (*Source)(nil)

// keys are those of our own.
type keys struct{ staging, info, lock, imported string }

// keysFor are in the slot of the user's key, where that can be done: a key with a
// brace that is no tag can not be put into one.
func keysFor(key string) (k keys, sameSlot bool) {
	base, sameSlot := key, true
	if start := strings.IndexByte(key, '{'); start < 0 || strings.IndexByte(key[start:], '}') <= 1 {
		if sameSlot = !strings.ContainsAny(key, "{}"); sameSlot {
			base = "{" + key + "}"
		}
	}
	base += ":duetime:"
	return keys{staging: base + "staging", info: base + "import", lock: base + "lock", imported: base + "imported"}, sameSlot
}

// ImportedKey is the hash of what was taken from a sorted set that was kept.
func ImportedKey(zset string) string {
	k, _ := keysFor(zset)
	return k.imported
}

// New makes a source. The client stays the caller's.
func New(client rueidis.Client, opts Options) (*Source, error) {
	if opts.LockTime == 0 {
		opts.LockTime = 15 * time.Second
	}
	if opts.slice == 0 {
		opts.slice = sliceEntries
	}
	if opts.Unit != Seconds && opts.Unit != Milliseconds {
		return nil, store.NewInputError("unit", string(opts.Unit), "must be s or ms")
	}
	s := &Source{client: client, opts: opts, token: rand.Text(), skip: make(map[string]bool)}
	s.keys, _ = keysFor(opts.ZSet)
	var err error
	s.scripts, err = loadScripts()
	return s, err
}

// check looks at the user's keys.
func (s *Source) check(ctx context.Context) error {
	for _, k := range []struct{ key, want, flag string }{{s.opts.ZSet, "zset", "zset"}, {s.opts.Hash, "hash", "hash"}} {
		if k.key == "" {
			continue
		}
		got, err := s.client.Do(ctx, s.client.B().Type().Key(k.key).Build()).ToString()
		if err != nil {
			return serverError(err)
		}
		if got != k.want && got != "none" {
			return store.NewInputError("--"+k.flag, k.key, "is a %s in this Redis, must be a %s", got, k.want)
		}
	}
	if s.client.Mode() != rueidis.ClientModeCluster {
		return nil
	}
	if _, ok := keysFor(s.opts.ZSet); !ok {
		return store.NewInputError("--zset", s.opts.ZSet, "has a brace that is no hash tag, so that nothing can be put beside it on a cluster")
	}
	if s.opts.Hash == "" {
		return nil
	}
	var slots [2]int64
	for i, key := range []string{s.opts.ZSet, s.opts.Hash} {
		var err error
		if slots[i], err = s.client.Do(ctx, s.client.B().ClusterKeyslot().Key(key).Build()).AsInt64(); err != nil {
			return serverError(err)
		}
	}
	if slots[0] != slots[1] {
		return store.NewInputError("--hash", s.opts.Hash, "is in another slot of the cluster than %q, so that an entry and its payload can not be taken in one step", s.opts.ZSet)
	}
	return nil
}

// about is what a takeover is about, as it is kept.
type about struct {
	Version int           `json:"version"`
	To      string        `json:"to"`
	Queue   string        `json:"queue"`
	Hash    string        `json:"hash"`
	Unit    Unit          `json:"unit"`
	Created bool          `json:"created"`
	Delay   time.Duration `json:"delay"`
	Keep    bool          `json:"keep"`
	Hold    time.Time     `json:"hold"`
}

// Begin implements takeover.Source.
func (s *Source) Begin(ctx context.Context, hold time.Time) (time.Time, error) {
	if err := s.check(ctx); err != nil {
		return hold, err
	}
	o := &s.opts
	mine := about{Version: 1, To: o.To, Queue: o.Queue, Hash: o.Hash, Unit: o.Unit, Created: o.Created, Delay: o.Delay, Keep: o.Keep, Hold: hold}
	text, err := json.Marshal(mine)
	if err != nil {
		return hold, err
	}
	giveUp := time.Time{}
	for {
		answer, err := s.scripts.begin.Exec(ctx, s.client, []string{s.keys.lock, s.keys.info, s.keys.staging}, []string{s.token, s.lockTime(), string(text)}).ToArray()
		if err != nil {
			return hold, serverError(err)
		}
		if got, _ := answer[0].AsInt64(); got == 1 {
			there, err := answer[1].ToString()
			if err != nil {
				return hold, serverError(err)
			}
			return s.sameAs(ctx, mine, there)
		}
		// One that was killed is known by its lock, which runs out.
		if now := time.Now(); giveUp.IsZero() {
			giveUp = now.Add(s.opts.LockTime + time.Second)
			if s.opts.Waiting != nil {
				s.opts.Waiting()
			}
		} else if now.After(giveUp) {
			return hold, fmt.Errorf("another import from %q is under way", s.opts.ZSet)
		}
		select {
		case <-time.After(s.opts.LockTime / 50):
		case <-ctx.Done():
			return hold, ctx.Err()
		}
	}
}

// sameAs compares what an earlier takeover was about.
func (s *Source) sameAs(ctx context.Context, mine about, text string) (time.Time, error) {
	var there about
	err := json.Unmarshal([]byte(text), &there)
	if err == nil && there.Version > mine.Version {
		err = fmt.Errorf("it is of version %d, this program knows up to %d", there.Version, mine.Version)
	}
	hold := there.Hold
	if err != nil {
		err = fmt.Errorf("key %q can not be read: %w", s.keys.info, err)
	} else if there.Hold = mine.Hold; there != mine {
		err = fmt.Errorf("an import from %q into queue %s of %s was broken off, with other flags than these: finish it first, by the same command as then", s.opts.ZSet, there.Queue, there.To)
	}
	if err != nil {
		return hold, errors.Join(err, s.End(ctx))
	}
	return hold, nil
}

func (s *Source) lockTime() string { return strconv.FormatInt(s.opts.LockTime.Milliseconds(), 10) }

// Count implements takeover.Source.
func (s *Source) Count(ctx context.Context) (int64, error) {
	n, err := s.client.Do(ctx, s.client.B().Zcard().Key(s.opts.ZSet).Build()).AsInt64()
	if err != nil {
		return 0, serverError(err)
	}
	return n, nil
}

// Staged implements takeover.Source.
func (s *Source) Staged(ctx context.Context) ([]takeover.Entry, error) {
	all, err := s.client.Do(ctx, s.client.B().Hgetall().Key(s.keys.staging).Build()).AsStrMap()
	if err != nil {
		return nil, serverError(err)
	}
	var entries []takeover.Entry
	for member, text := range all {
		phase, rest, _ := strings.Cut(text, " ")
		score, payload, ok := strings.Cut(rest, " ")
		e, err := s.entry(member, score, payload)
		if !ok || err != nil || phase != "0" && phase != "1" {
			return nil, fmt.Errorf("key %q: the entry %q can not be read", s.keys.staging, member)
		}
		e.Stored = phase == "1"
		entries = append(entries, e)
	}
	return entries, nil
}

func (s *Source) entry(member, score, payload string) (takeover.Entry, error) {
	e := takeover.Entry{ID: member}
	var err error
	e.Due, e.Created, err = s.opts.times(score)
	if s.opts.Hash == "" {
		payload = member
	}
	if payload != "" {
		e.Payload = []byte(payload)
	}
	return e, err
}

// Skip implements takeover.Source.
func (s *Source) Skip(id string) { s.skip[id] = true }

// Left implements takeover.Source.
func (s *Source) Left() (int64, []takeover.Left) { return s.left, s.first }

// Stored implements takeover.Source.
func (s *Source) Stored(ctx context.Context, entries []takeover.Entry) (gone []takeover.Entry, err error) {
	return nil, s.about(ctx, s.scripts.stored, []string{s.keys.lock, s.keys.staging}, nil, entries)
}

// PutBack implements takeover.Source.
func (s *Source) PutBack(ctx context.Context, entries []takeover.Entry) error {
	return s.about(ctx, s.scripts.putBack, s.takeKeys(), s.mode(), entries)
}

// Done implements takeover.Source.
func (s *Source) Done(ctx context.Context, entries []takeover.Entry) error {
	return s.about(ctx, s.scripts.done, []string{s.keys.lock, s.keys.staging}, nil, entries)
}

// about runs a script on entries that are staged, all of them.
func (s *Source) about(ctx context.Context, script *rueidis.Lua, keys, args []string, entries []takeover.Entry) error {
	for len(entries) > 0 {
		slice := entries[:min(len(entries), sliceEntries)]
		entries = entries[len(slice):]
		all := append([]string{s.token, s.lockTime()}, args...)
		for _, e := range slice {
			all = append(all, e.ID)
		}
		n, err := script.Exec(ctx, s.client, keys, all).AsInt64()
		if err != nil {
			return s.failed(err)
		}
		if n != int64(len(slice)) {
			return fmt.Errorf("key %q has changed under this import: %d of %d entries are there", s.keys.staging, n, len(slice))
		}
	}
	return nil
}

// keep extends the lock, now and then.
func (s *Source) keep(ctx context.Context) error {
	if time.Since(s.kept) < s.opts.LockTime/5 {
		return nil
	}
	_, err := s.scripts.done.Exec(ctx, s.client, []string{s.keys.lock, s.keys.staging}, []string{s.token, s.lockTime()}).AsInt64()
	if err != nil {
		return s.failed(err)
	}
	s.kept = time.Now()
	return nil
}

func (s *Source) failed(err error) error {
	if strings.Contains(err.Error(), "LOCKLOST") {
		return fmt.Errorf("the lock of this import is lost: the store or Redis took longer than %v to answer, or another import was begun", s.opts.LockTime)
	}
	return serverError(err)
}

func (s *Source) takeKeys() []string {
	hash := s.opts.Hash
	if hash == "" {
		hash = s.opts.ZSet
	}
	return []string{s.keys.lock, s.opts.ZSet, s.keys.staging, s.keys.imported, hash}
}

func (s *Source) mode() []string {
	mode, hashed := "move", "0"
	if s.opts.Keep {
		mode = "keep"
	}
	if s.opts.Hash != "" {
		hashed = "1"
	}
	return []string{mode, hashed}
}

// End implements takeover.Source.
func (s *Source) End(ctx context.Context) error {
	_, err := s.scripts.end.Exec(ctx, s.client, []string{s.keys.lock, s.keys.info, s.keys.staging}, []string{s.token}).AsInt64()
	if err != nil {
		return serverError(err)
	}
	return nil
}
