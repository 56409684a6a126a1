package main

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// handMade is a scheduler as people build them on a sorted set, with its producers
// and consumers at work.
type handMade struct {
	*oldSystem
	redis *testserver.RedisServer

	add func(c *testserver.RedisConn, id string, due time.Time)
	pop func(c *testserver.RedisConn) []string // what a consumer runs next
}

func newHandMade(t *testing.T, r *testserver.RedisServer, name string, args ...string) *handMade {
	h := &handMade{oldSystem: newOldSystem(t, name, append([]string{"redis", "redis://" + r.Addr}, args...)...), redis: r}
	h.atWork = h
	return h
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
	h := newHandMade(t, r, "s1", "--zset", "{s1}:orders", "--hash", "{s1}:data", "--unit", "ms", "--score", "created", "--delay", orderDelay.String())
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
	h := newHandMade(t, r, "s2", "--zset", "s2", "--unit", "ms")
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
	h := newHandMade(t, r, "s4", "--zset", "s4:{tag}", "--unit", "s")
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
		id, due := h.fresh(8 * time.Second)
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
		h.has(ids...)
		time.Sleep(time.Duration(max(1, len(ids))) * 40 * time.Millisecond)
	}
}

func (h *handMade) left() (left int) {
	c, err := h.redis.Dial()
	if err != nil {
		h.t.Error(err)
		return 0
	}
	defer c.Close()
	for _, key := range texts(h.do(c, "KEYS", "*"+h.name+"*")) {
		var n int64
		switch h.do(c, "TYPE", key) {
		case "zset":
			n, _ = h.do(c, "ZCARD", key).(int64)
		case "hash":
			n, _ = h.do(c, "HLEN", key).(int64)
		}
		left += int(n)
	}
	return left
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
	var all []*oldSystem
	for _, h := range []*handMade{orderQueue(t, redis), manyConsumers(t, redis), headPolling(t, redis)} {
		all = append(all, h.oldSystem)
	}
	takeOver(t, f, all, n, kills, time.Duration(kills)*8*time.Second)
	conn, err := redis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if keys, err := conn.Do("KEYS", "*"); err != nil || len(texts(keys)) > 0 {
		t.Errorf("left in Redis: %v, %v", keys, err)
	}
}
