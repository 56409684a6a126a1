package redissource

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/takeovertest"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
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
	dest   *takeovertest.Dest
	want   map[string]takeovertest.Entry
	old    map[string]int // runs by the old consumers
}

// newWorld uses a server again; it is emptied.
func newWorld(t testing.TB, client rueidis.Client) *world {
	t.Helper()
	w := &world{TB: t, ctx: context.Background(), client: client}
	w.dest = takeovertest.NewDest(t, queue)
	w.want, w.old = make(map[string]takeovertest.Entry), make(map[string]int)
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
	e := takeovertest.Entry{Due: due.Truncate(time.Millisecond), Payload: "payload of " + id + "\x00\xff"}
	w.want[id] = e
	w.do("HSET", hash, id, e.Payload)
	w.do("ZADD", zset, fmt.Sprint(e.Due.UnixMilli()), id)
}

func (w *world) fill() {
	w.Helper()
	now := w.dest.Clock.Now()
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
	m := w.do("ZRANGEBYSCORE", zset, "-inf", fmt.Sprint(w.dest.Clock.Now().UnixMilli()), "LIMIT", "0", "1")
	ids, err := m.AsStrSlice()
	w.must(err)
	for _, id := range ids {
		if w.number("ZREM", zset, id) == 1 {
			w.old[id]++
			w.do("HDEL", hash, id)
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
	w.dest.Check(w.want, w.old)
}

func (w *world) keys() []string {
	w.Helper()
	m := w.do("KEYS", "*")
	keys, err := m.AsStrSlice()
	w.must(err)
	slices.Sort(keys)
	return keys
}

// runDying runs a process that ends at its nth step, and says whether it did.
func (w *world) runDying(opts Options, topts takeover.Options, n int, before bool, do func(step int)) (steps int, killed bool) {
	w.Helper()
	w.do("DEL", w.source(opts).keys.lock) // it has run out
	d := &takeovertest.Dying{Source: w.source(opts), N: n, Before: before, Do: do}
	topts.Queue = queue
	return d.Run(w.ctx, w.dest, topts)
}

func coin() bool { return rand.IntN(2) == 0 }
