package redisstore

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

// prefixes keeps the stores of tests that share a server apart.
var prefixes atomic.Int64

func nextPrefix() string { return fmt.Sprintf("duetime:t%d", prefixes.Add(1)) }

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s := openFor(t, o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// openFor leaves it to the caller to close the store.
func openFor(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = nextPrefix()
	}
	if o.Sweep == 0 {
		o.Sweep = -1
	}
	if o.Warn == nil {
		o.Warn = func(m string) { t.Log(m) }
	}
	s, err := Open(context.Background(), &o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stillClock reads the time from what every script is told of who asks.
const stillClock = `
local function time()
  local seconds, microseconds = string.match(ARGV[3], '|(%d+)|(%d+)')
  return {tonumber(seconds), tonumber(microseconds)}
end
`

// setClock makes scripts show a time that stands still.
func (s *Store) setClock(now time.Time) {
	if s.scripts().claim.sha != still().claim.sha {
		s.operations.Store(still())
	}
	origin := fmt.Sprintf("%s|%d|%d", s.opts.Prefix, now.Unix(), now.Nanosecond()/1000)
	s.origin.Store(&origin)
	s.clock.set(now)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, q := range s.queues {
		q.mu.Lock()
		q.heads.forget()
		q.mu.Unlock()
	}
}

var still = sync.OnceValue(func() *scripts { return newScripts(stillClock) })

// harness opens stores on one server, or cluster, for the conformance suite.
// Their clock stands still, and is moved through the scripts.
func harness(o Options) func(t testing.TB) *storetest.Instance {
	return func(t testing.TB) *storetest.Instance {
		o := o
		o.Prefix = nextPrefix()
		clock := storetest.NewClock()
		s := openFor(t, o)
		s.setClock(clock.Now())
		var mu sync.Mutex
		return &storetest.Instance{
			Store: s,
			Advance: func(d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				clock.Advance(d)
				s.setClock(clock.Now())
			},
			Reopen: func(t testing.TB) store.Store {
				mu.Lock()
				defer mu.Unlock()
				checkWhole(t, s)
				old := s
				t.Cleanup(func() { _ = old.Close() })
				s = openFor(t, o)
				s.setClock(clock.Now())
				return s
			},
		}
	}
}

// checkWhole says whether every task is in exactly one state, each lease has a
// task, and the other way round.
func checkWhole(t testing.TB, s *Store) {
	t.Helper()
	ctx := context.Background()
	names, err := s.client.Do(ctx, s.client.B().Smembers().Key(s.registryKey()).Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		k, err := s.reload(ctx, name)
		if err != nil || k == nil {
			t.Fatalf("queue %s: %v, %v", name, k, err)
		}
		for _, sh := range k.all() {
			checkShard(t, s, sh)
		}
	}
}

func checkShard(t testing.TB, s *Store, sh *shard) {
	t.Helper()
	ctx := context.Background()
	b := s.client.B
	strMap := func(c rueidis.Completed) map[string]string {
		m, err := s.client.Do(ctx, c).AsStrMap()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	scores := func(key string) map[string]int64 {
		zs, err := s.client.Do(ctx, b().Zrange().Key(key).Min("0").Max("-1").Withscores().Build()).AsZScores()
		if err != nil {
			t.Fatal(err)
		}
		m := make(map[string]int64)
		for _, z := range zs {
			m[z.Member] = int64(z.Score)
		}
		return m
	}
	tasks := strMap(b().Hgetall().Key(sh.keys[1]).Build())
	leases := strMap(b().Hgetall().Key(sh.keys[3]).Build())
	movingIDs := strMap(b().Hgetall().Key(sh.keys[6]).Build())
	due, ends, dead := scores(sh.keys[2]), scores(sh.keys[4]), scores(sh.keys[5])
	entries := len(due) + len(ends) + len(dead) + len(movingIDs)
	if entries != len(tasks) || len(ends) != len(leases) {
		t.Errorf("shard %s: %d tasks, of which %d due, %d leased (%d leases), %d dead, %d moving", sh.keys[1], len(tasks), len(due), len(ends), len(leases), len(dead), len(movingIDs))
	}
	for id, text := range tasks {
		r, err := readRecord(text, true)
		if err != nil {
			t.Errorf("shard %s: task %q: %v", sh.keys[1], id, err)
			continue
		}
		member := text[1:8] + id
		at, isDue := due[member]
		until, isLeased := ends[member]
		diedAt, isDead := dead[member]
		_, isMoving := movingIDs[id]
		if n := btoi(isDue) + btoi(isLeased) + btoi(isDead) + btoi(isMoving); n != 1 {
			t.Errorf("shard %s: task %q is in %d states", sh.keys[1], id, n)
		}
		if want := r.task.Due.UnixMilli(); isDue && at != want || isDead && diedAt != want {
			t.Errorf("shard %s: task %q is due at %d by its record, %d by the index", sh.keys[1], id, want, max(at, diedAt))
		}
		if isLeased {
			l, err := readLease(leases[id])
			if err != nil || l.until.UnixMilli() != until || l.due != r.task.Due || l.seq != r.seq {
				t.Errorf("shard %s: task %q: lease %+v (%v), index %d, record %+v", sh.keys[1], id, l, err, until, r.task)
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// shared is a server that the tests of this package share; each has keys of its
// own in it.
var shared struct {
	once    sync.Once
	server  *testserver.RedisServer
	cluster struct {
		once   sync.Once
		server *testserver.RedisClusterServer
		err    error
	}
	err error
}

func sharedServer(t testing.TB) *testserver.RedisServer {
	testserver.Need(t, "redis-server")
	shared.once.Do(func() { shared.server, shared.err = testserver.StartRedis(nil) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

func sharedCluster(t testing.TB) *testserver.RedisClusterServer {
	testserver.Need(t, "redis-server")
	shared.cluster.once.Do(func() {
		shared.cluster.server, shared.cluster.err = testserver.StartRedisCluster(nil)
	})
	if shared.cluster.err != nil {
		t.Fatal(shared.cluster.err)
	}
	return shared.cluster.server
}

func TestMain(m *testing.M) {
	if role := os.Getenv(playVariable); role != "" {
		os.Exit(play(role))
	}
	flag.Parse()
	// The tests that are for this wait more than they work.
	_ = flag.Set("test.parallel", "6")
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	if shared.cluster.server != nil {
		shared.cluster.server.Close()
	}
	os.Exit(code)
}
