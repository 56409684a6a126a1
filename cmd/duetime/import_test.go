package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// handMade is a scheduler as people build them on a sorted set, with its producers
// and consumers at work.
type handMade struct {
	t     *testing.T
	redis *testserver.RedisServer
	name  string
	args  []string // of duetime import redis

	add func(c *testserver.RedisConn, id string, due time.Time)
	pop func(c *testserver.RedisConn) []string // what a consumer runs next

	mu  sync.Mutex
	due map[string]time.Time
	ran map[string]int // by the old consumers
}

func (h *handMade) do(c *testserver.RedisConn, args ...any) any {
	answer, err := c.Do(args...)
	if err != nil {
		h.t.Errorf("%s: %v: %v", h.name, args, err)
	}
	return answer
}

func texts(answer any) []string {
	list, _ := answer.([]any)
	var out []string
	for _, x := range list {
		text, _ := x.(string)
		out = append(out, text)
	}
	return out
}

// The delay that the reader of the order queue adds to the time of creation.
const orderDelay = time.Minute

// orderQueue has the time of creation as score, payloads in a hash, and a script
// that pops ten at a time, the newest first.
func orderQueue(t *testing.T, r *testserver.RedisServer) *handMade {
	h := &handMade{t: t, redis: r, name: "s1", args: []string{"--zset", "{s1}:orders", "--hash", "{s1}:data", "--unit", "ms", "--score", "created", "--delay", orderDelay.String()}}
	h.add = func(c *testserver.RedisConn, id string, due time.Time) {
		h.do(c, "EVAL", `redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]); redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])`,
			2, "{s1}:orders", "{s1}:data", id, due.Add(-orderDelay).UnixMilli(), `{"order":"`+id+`"}`)
	}
	h.pop = func(c *testserver.RedisConn) []string {
		return texts(h.do(c, "EVAL", `local ids = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf', 'LIMIT', 0, 10)
			if #ids > 0 then redis.call('ZREM', KEYS[1], unpack(ids)); redis.call('HDEL', KEYS[2], unpack(ids)) end
			return ids`, 2, "{s1}:orders", "{s1}:data", time.Now().Add(-orderDelay).UnixMilli()))
	}
	return h
}

// manyConsumers has due times in milliseconds; whoever removes an entry runs it.
func manyConsumers(t *testing.T, r *testserver.RedisServer) *handMade {
	h := &handMade{t: t, redis: r, name: "s2", args: []string{"--zset", "s2", "--unit", "ms"}}
	h.add = func(c *testserver.RedisConn, id string, due time.Time) { h.do(c, "ZADD", "s2", due.UnixMilli(), id) }
	h.pop = func(c *testserver.RedisConn) []string {
		ids := texts(h.do(c, "ZRANGEBYSCORE", "s2", "-inf", time.Now().UnixMilli(), "LIMIT", 0, 1))
		if len(ids) == 1 && h.do(c, "ZREM", "s2", ids[0]) == int64(1) {
			return ids
		}
		return nil
	}
	return h
}

// headPolling has due times in seconds; each thread looks at the head.
func headPolling(t *testing.T, r *testserver.RedisServer) *handMade {
	h := &handMade{t: t, redis: r, name: "s4", args: []string{"--zset", "s4:{tag}", "--unit", "s"}}
	h.add = func(c *testserver.RedisConn, id string, due time.Time) { h.do(c, "ZADD", "s4:{tag}", due.Unix(), id) }
	h.pop = func(c *testserver.RedisConn) []string {
		head := texts(h.do(c, "ZRANGE", "s4:{tag}", 0, 0, "WITHSCORES"))
		if len(head) == 2 && head[1] <= fmt.Sprint(time.Now().Unix()) && h.do(c, "ZREM", "s4:{tag}", head[0]) == int64(1) {
			return head[:1]
		}
		return nil
	}
	return h
}

// produce adds entries that are due about now.
func (h *handMade) produce(n int, pause time.Duration) {
	c, err := h.redis.Dial()
	if err != nil {
		h.t.Error(err)
		return
	}
	defer c.Close()
	for range n {
		due := time.Now().Add(time.Duration(rand.IntN(9000)-1000) * time.Millisecond).Truncate(time.Second)
		h.mu.Lock()
		id := fmt.Sprintf("%s-%05d", h.name, len(h.due))
		h.due[id] = due
		h.mu.Unlock()
		h.add(c, id, due)
		time.Sleep(pause)
	}
}

func (h *handMade) consume(stop *atomic.Bool) {
	c, err := h.redis.Dial()
	if err != nil {
		h.t.Error(err)
		return
	}
	defer c.Close()
	for !stop.Load() {
		ids := h.pop(c)
		h.mu.Lock()
		for _, id := range ids {
			h.ran[id]++
		}
		h.mu.Unlock()
		time.Sleep(time.Duration(max(1, len(ids))) * 40 * time.Millisecond)
	}
}

// TestImportKilled: three hand-made schedulers are taken over with --follow while
// their producers and consumers go on and duetime's workers run what has come; the
// command is killed in the middle and begun again. Each entry runs once, in the old
// system or in the new.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "redis-server")
	f := newFleet(t)
	redis := testserver.Redis(t, nil)
	n, kills := 2000, 1
	if long {
		n, kills = 20_000, 6
	}
	var group sync.WaitGroup
	all := []*handMade{orderQueue(t, redis), manyConsumers(t, redis), headPolling(t, redis)}
	for _, h := range all {
		h.due, h.ran = make(map[string]time.Time), make(map[string]int)
		_, log := f.start("duetime", "work", h.name, "--concurrency", "8")
		f.logs = append(f.logs, log)
		group.Go(func() { h.takenOver(f, n, kills) })
	}
	group.Wait()
	if t.Failed() {
		return
	}
	runs := func() map[string]int {
		counts := make(map[string]int)
		for _, r := range f.runs() {
			counts[r.ID]++
		}
		return counts
	}
	f.poll("everything to have run", func() bool {
		got := len(runs())
		for _, h := range all {
			got += len(h.ran)
		}
		return got >= len(all)*n
	})
	inNew := runs()
	for _, h := range all {
		old := 0
		for id := range h.due {
			if h.ran[id]+inNew[id] != 1 {
				t.Errorf("%s ran %d times in the old system and %d times in the new", id, h.ran[id], inNew[id])
			}
			old += h.ran[id]
		}
		if old == 0 || old == n {
			t.Errorf("%s: %d of %d ran in the old system: this test shows nothing", h.name, old, n)
		}
		t.Logf("%s: %d of %d ran in the old system", h.name, old, n)
	}
	for _, r := range f.runs() {
		for _, h := range all {
			if due, ok := h.due[r.ID]; ok && (!r.DueAt.Equal(due) || r.ClaimedAt.Before(due)) {
				t.Errorf("%s ran at %v with due time %v, was due at %v", r.ID, r.ClaimedAt, r.DueAt, due)
			}
		}
	}
	conn, err := redis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if keys, err := conn.Do("KEYS", "*"); err != nil || len(texts(keys)) > 0 {
		t.Errorf("left in Redis: %v, %v", keys, err)
	}
}

func (h *handMade) takenOver(f *fleet, n, kills int) {
	h.produce(n/2, 0)
	var stop atomic.Bool
	var consumers, producer sync.WaitGroup
	for range 4 {
		consumers.Go(func() { h.consume(&stop) })
	}
	producer.Go(func() { h.produce(n-n/2, time.Duration(kills)*8*time.Second/time.Duration(n)) })
	time.Sleep(300 * time.Millisecond) // the old consumers have their share
	args := append([]string{"import", "redis", "redis://" + h.redis.Addr, "--queue", h.name, "--follow"}, h.args...)
	for range kills {
		cmd := exec.Command("duetime", args...)
		cmd.Env = append(os.Environ(), "DUETIME_STORE="+f.url())
		if err := cmd.Start(); err != nil {
			h.t.Error(err)
			return
		}
		time.Sleep(30*time.Millisecond + time.Duration(rand.Int64N(int64(400*time.Millisecond))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	cmd := exec.Command("duetime", args...)
	cmd.Env = append(os.Environ(), "DUETIME_STORE="+f.url())
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		h.t.Error(err)
		return
	}
	producer.Wait()
	c, err := h.redis.Dial()
	if err != nil {
		h.t.Error(err)
		return
	}
	defer c.Close()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		left := int64(0)
		for _, key := range texts(h.do(c, "KEYS", "*"+h.name+"*")) {
			switch h.do(c, "TYPE", key) {
			case "zset":
				n, _ := h.do(c, "ZCARD", key).(int64)
				left += n
			case "hash":
				n, _ := h.do(c, "HLEN", key).(int64)
				left += n
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			h.t.Errorf("%s: %d entries are still in Redis", h.name, left)
			break
		}
	}
	stop.Store(true)
	consumers.Wait()
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		h.t.Errorf("%s: the import: %v: %s", h.name, err, said.String())
	}
}
