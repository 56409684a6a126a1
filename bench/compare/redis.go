package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/redisstore"
)

// startRedis starts a Redis that syncs its append-only file every second, for one
// system alone.
func startRedis() (*testserver.RedisServer, error) {
	return testserver.StartRedis(&testserver.RedisOptions{AOF: true})
}

func usedMemory(ctx context.Context, c *redis.Client) (int64, error) {
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			return strconv.ParseInt(text, 10, 64)
		}
	}
	return 0, errors.New("redis does not tell its memory")
}

func openOurRedis(hands int) func(context.Context) (system, error) {
	return func(ctx context.Context) (system, error) {
		server, err := startRedis()
		if err != nil {
			return nil, err
		}
		st, err := redisstore.Open(ctx, &redisstore.Options{Addrs: []string{server.Addr}})
		if err != nil {
			server.Close()
			return nil, err
		}
		info := redis.NewClient(&redis.Options{Addr: server.Addr})
		o := newOurs(st, hands, func() { _ = info.Close(); server.Close() })
		o.weigh = func(ctx context.Context) (int64, error) { return usedMemory(ctx, info) }
		return o, nil
	}
}

// asynqSystem is hibiken/asynq.
type asynqSystem struct {
	server *testserver.RedisServer
	rdb    *redis.Client
	client *asynq.Client
	config asynq.Config
}

func openAsynq(config asynq.Config) func(context.Context) (system, error) {
	return func(context.Context) (system, error) {
		server, err := startRedis()
		if err != nil {
			return nil, err
		}
		config.LogLevel = asynq.FatalLevel
		a := &asynqSystem{server: server, config: config}
		a.rdb = redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 8})
		// A connection for each of those who schedule at the same time.
		a.client = asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr, PoolSize: singleProducers + 16})
		return a, nil
	}
}

func (a *asynqSystem) reset(ctx context.Context) error { return a.rdb.FlushAll(ctx).Err() }

// put makes a call for each task: asynq has none for many.
func (a *asynqSystem) put(ctx context.Context, _, from, to int, due func(int) time.Time) error {
	for i := from; i < to; i++ {
		if _, err := a.client.EnqueueContext(ctx, asynq.NewTask("compare", payload(i, due(i))), asynq.ProcessAt(due(i))); err != nil {
			return err
		}
	}
	return nil
}

func (a *asynqSystem) consume(_ context.Context, on func([]byte), _ func()) (func(), error) {
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: a.server.Addr, PoolSize: a.config.Concurrency + 20}, a.config)
	err := s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		on(t.Payload())
		return nil
	}))
	return s.Shutdown, err
}

func (a *asynqSystem) left(ctx context.Context) (int, error) {
	p := a.rdb.Pipeline()
	active, pending, scheduled := p.LLen(ctx, "asynq:{default}:active"), p.LLen(ctx, "asynq:{default}:pending"), p.ZCard(ctx, "asynq:{default}:scheduled")
	_, err := p.Exec(ctx)
	return int(active.Val() + pending.Val() + scheduled.Val()), err
}

func (a *asynqSystem) memory(ctx context.Context) (int64, error) { return usedMemory(ctx, a.rdb) }

func (a *asynqSystem) close() {
	_ = a.client.Close()
	_ = a.rdb.Close()
	a.server.Close()
}

// sortedSet is what articles show: a sorted set with the ids by due time, a hash with
// the tasks as JSON, and scripts that put and take. What was taken is gone: there is
// no lease and no ack.
type sortedSet struct {
	server    *testserver.RedisServer
	rdb       *redis.Client
	pollers   int
	max       int           // tasks in a take
	pause     time.Duration // after a take that was not full
	put1, pop *redis.Script
}

const (
	setPut = `redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])`
	setTake = `local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #ids == 0 then return {} end
local tasks = redis.call('HMGET', KEYS[2], unpack(ids))
redis.call('ZREM', KEYS[1], unpack(ids))
redis.call('HDEL', KEYS[2], unpack(ids))
return tasks`
)

type setTask struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

func openSortedSet(pollers, limit int, pause time.Duration) func(context.Context) (system, error) {
	return func(ctx context.Context) (system, error) {
		server, err := startRedis()
		if err != nil {
			return nil, err
		}
		s := &sortedSet{server: server, pollers: pollers, max: limit, pause: pause, put1: redis.NewScript(setPut), pop: redis.NewScript(setTake)}
		s.rdb = redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: singleProducers + 16})
		return s, s.reset(ctx)
	}
}

func (s *sortedSet) reset(ctx context.Context) error {
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return errors.Join(s.put1.Load(ctx, s.rdb).Err(), s.pop.Load(ctx, s.rdb).Err())
}

var setKeys = []string{"compare:due", "compare:tasks"}

func (s *sortedSet) put(ctx context.Context, _, from, to int, due func(int) time.Time) error {
	one := func(c redis.Scripter, i int) error {
		body, err := json.Marshal(setTask{id(i), string(payload(i, due(i)))})
		if err != nil {
			return err
		}
		return s.put1.EvalSha(ctx, c, setKeys, due(i).UnixMilli(), id(i), body).Err()
	}
	if to-from == 1 {
		return one(s.rdb, from)
	}
	p := s.rdb.Pipeline()
	for i := from; i < to; i++ {
		if err := one(p, i); err != nil {
			return err
		}
	}
	_, err := p.Exec(ctx)
	return err
}

func (s *sortedSet) consume(ctx context.Context, on func([]byte), acked func()) (func(), error) {
	var done atomic.Bool
	var all sync.WaitGroup
	for range s.pollers {
		all.Go(func() {
			for !done.Load() && ctx.Err() == nil {
				tasks, err := s.pop.EvalSha(ctx, s.rdb, setKeys, time.Now().UnixMilli(), s.max).StringSlice()
				if err != nil {
					fmt.Println("sorted set:", err)
					return
				}
				for _, text := range tasks {
					var t setTask
					if json.Unmarshal([]byte(text), &t) == nil {
						on([]byte(t.Body))
						acked()
					}
				}
				if len(tasks) < s.max {
					time.Sleep(s.pause)
				}
			}
		})
	}
	return func() { done.Store(true); all.Wait() }, nil
}

func (s *sortedSet) memory(ctx context.Context) (int64, error) { return usedMemory(ctx, s.rdb) }

func (s *sortedSet) close() {
	_ = s.rdb.Close()
	s.server.Close()
}
