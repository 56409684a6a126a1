package redissource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/faultstore"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/storetest"
)

const (
	zset  = "orders"
	hash  = "orders:payloads"
	queue = "q"
)

// world is a Redis with a hand-made sorted set, whose consumers are still there,
// and a store with a worker. It knows what ran where.
type world struct {
	testing.TB
	ctx    context.Context
	client rueidis.Client
	clock  *storetest.Clock
	dest   *memstore.Store
	want   map[string]entry
	old    map[string]int // runs by the old consumers
	runs   map[string][]store.Lease
	order  []string
}

type entry struct {
	score   int64
	payload string
}

// newWorld uses a server again; it is emptied.
func newWorld(t testing.TB, client rueidis.Client) *world {
	t.Helper()
	w := &world{TB: t, ctx: context.Background(), client: client}
	w.clock = storetest.NewClock()
	w.dest = memstore.New(&memstore.Options{Now: w.clock.Now})
	w.want, w.old, w.runs = make(map[string]entry), make(map[string]int), make(map[string][]store.Lease)
	w.do("FLUSHALL")
	return w
}

func dial(t testing.TB, url string) rueidis.Client {
	t.Helper()
	client, err := Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func single(t testing.TB) rueidis.Client {
	t.Helper()
	return dial(t, "redis://"+testserver.Redis(t, nil).Addr)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) do(args ...string) rueidis.RedisMessage {
	w.Helper()
	m, err := w.client.Do(w.ctx, w.client.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		w.Fatalf("%q: %v", args, err)
	}
	return m
}

func (w *world) number(args ...string) int64 {
	w.Helper()
	m := w.do(args...)
	n, err := m.AsInt64()
	w.must(err)
	return n
}

// add is a producer of the old system, with a hash.
func (w *world) add(id string, due time.Time) {
	w.Helper()
	e := entry{due.UnixMilli(), "payload of " + id + "\x00\xff"}
	w.want[id] = e
	w.do("HSET", hash, id, e.payload)
	w.do("ZADD", zset, fmt.Sprint(e.score), id)
}

func (w *world) fill() {
	w.Helper()
	now := w.clock.Now()
	for i := range 6 {
		w.add(fmt.Sprint("past", i), now.Add(-time.Duration(i)*time.Minute))
	}
	for i := range 6 {
		w.add(fmt.Sprint("same", i), now.Add(-time.Hour))
		w.add(fmt.Sprint("future ", i), now.Add(time.Duration(i+1)*time.Hour))
	}
	w.add("日本 {}:/\"\\<", now.Add(time.Minute))
}

// pop is a consumer of the old system: it reads the head and runs what it removes.
func (w *world) pop() {
	w.Helper()
	m := w.do("ZRANGEBYSCORE", zset, "-inf", fmt.Sprint(w.clock.Now().UnixMilli()), "LIMIT", "0", "1")
	ids, err := m.AsStrSlice()
	w.must(err)
	for _, id := range ids {
		if w.number("ZREM", zset, id) == 1 {
			w.old[id]++
			w.do("HDEL", hash, id)
		}
	}
}

// work runs all that is due in the store.
func (w *world) work() {
	w.Helper()
	for {
		r, err := w.dest.Claim(w.ctx, []store.ClaimRequest{{Queue: queue, Max: 100, Lease: time.Minute}})
		w.must(err)
		if len(r[0].Tasks) == 0 {
			return
		}
		for _, l := range r[0].Tasks {
			w.runs[l.ID] = append(w.runs[l.ID], l)
			w.order = append(w.order, l.ID)
			_, err := w.dest.Settle(w.ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}})
			w.must(err)
		}
	}
}

func options() Options {
	return Options{ZSet: zset, Hash: hash, Unit: Milliseconds, Queue: queue, To: "to", MaxPayload: store.MaxPayloadBytes, LockTime: 5 * time.Second, slice: 7}
}

func (w *world) source(opts Options) *Source {
	w.Helper()
	s, err := New(w.client, opts)
	w.must(err)
	return s
}

func (w *world) run(opts Options) *takeover.Report {
	w.Helper()
	r, err := takeover.Run(w.ctx, w.source(opts), w.dest, takeover.Options{Queue: queue})
	w.must(err)
	return r
}

// check says that each entry has run once, by the old consumers or by the worker,
// as it was and not early, and that nothing is left behind.
func (w *world) check() {
	w.Helper()
	if keys := w.keys(); len(keys) > 0 {
		w.Errorf("left in Redis: %q", keys)
	}
	w.work()
	w.clock.Advance(24 * time.Hour)
	w.work()
	for id, e := range w.want {
		if n := w.old[id] + len(w.runs[id]); n != 1 {
			w.Errorf("%q ran %d times in the old system and %d times in the new", id, w.old[id], len(w.runs[id]))
		}
		for _, l := range w.runs[id] {
			if l.Due.UnixMilli() != e.score || string(l.Payload) != e.payload || l.ClaimedAt.Before(l.Due) {
				w.Errorf("%q ran as %+v at %v, want %+v", id, l.Task, l.ClaimedAt, e)
			}
		}
	}
	stats, err := w.dest.Stats(w.ctx, queue)
	w.must(err)
	if stats != (store.Stats{}) {
		w.Errorf("the store still has %+v", stats)
	}
}

func (w *world) keys() []string {
	w.Helper()
	m := w.do("KEYS", "*")
	keys, err := m.AsStrSlice()
	w.must(err)
	slices.Sort(keys)
	return keys
}

var errKilled = errors.New("killed")

// dying is a process that ends at its nth step, before or after it.
type dying struct {
	takeover.Source
	n      int // 0: never
	before bool
	steps  int
	do     func(step int)
}

func (d *dying) step(f func() error) error {
	d.steps++
	if d.n > 0 && d.steps > d.n || d.steps == d.n && d.before {
		return errKilled
	}
	if d.do != nil {
		d.do(d.steps)
	}
	err := f()
	if d.steps == d.n {
		return errKilled
	}
	return err
}

func (d *dying) Begin(ctx context.Context, hold time.Time) (at time.Time, err error) {
	err = d.step(func() error { at, err = d.Source.Begin(ctx, hold); return err })
	return at, err
}

func (d *dying) Staged(ctx context.Context) (e []takeover.Entry, err error) {
	err = d.step(func() error { e, err = d.Source.Staged(ctx); return err })
	return e, err
}

func (d *dying) Take(ctx context.Context) (e []takeover.Entry, more bool, err error) {
	err = d.step(func() error {
		e, more, err = d.Source.Take(ctx)
		return err
	})
	return e, more, err
}

func (d *dying) Stored(ctx context.Context, e []takeover.Entry) (gone []takeover.Entry, err error) {
	err = d.step(func() error { gone, err = d.Source.Stored(ctx, e); return err })
	return gone, err
}

func (d *dying) PutBack(ctx context.Context, e []takeover.Entry) error {
	return d.step(func() error { return d.Source.PutBack(ctx, e) })
}

func (d *dying) Done(ctx context.Context, e []takeover.Entry) error {
	return d.step(func() error { return d.Source.Done(ctx, e) })
}

func (d *dying) End(ctx context.Context) error {
	return d.step(func() error { return d.Source.End(ctx) })
}

// runDying runs a process that ends at its nth step, and says whether it did.
func (w *world) runDying(opts Options, topts takeover.Options, n int, before bool, do func(step int)) (steps int, killed bool) {
	w.Helper()
	w.do("DEL", w.source(opts).keys.lock) // it has run out
	d := &dying{Source: w.source(opts), n: n, before: before, do: do}
	dest := faultstore.New(w.dest, func(faultstore.Call) (f faultstore.Fault) {
		err := d.step(func() error { return nil })
		switch {
		case err == nil:
		case d.steps == d.n && !d.before:
			f.FailAfter = errKilled
		default:
			f.FailBefore = errKilled
		}
		return f
	})
	topts.Queue = queue
	_, err := takeover.Run(w.ctx, d, dest, topts)
	if err != nil && !errors.Is(err, errKilled) {
		w.Fatalf("killed at step %d: %v", n, err)
	}
	return d.steps, err != nil
}

func coin() bool { return rand.IntN(2) == 0 }
