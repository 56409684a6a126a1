package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// A client calls scripts that were loaded.
type client interface {
	number(ctx context.Context, sha string, keys, args []string) (int64, error)
	strings(ctx context.Context, sha string, keys, args []string) ([]string, error)
	close()
}

// A kind is a client as its users get it, with the defaults but for what its name
// says.
type kind struct {
	name string
	open func(addrs []string) (client, error)
}

var clients = []kind{
	{"rueidis", func(addrs []string) (client, error) { return openRueidis(addrs, 0) }},
	{"rueidis, flush 20 µs", func(addrs []string) (client, error) { return openRueidis(addrs, 20*time.Microsecond) }},
	{"go-redis, AutoPipeline", func(addrs []string) (client, error) { return openGoRedis(addrs, true) }},
	{"go-redis, plain", func(addrs []string) (client, error) { return openGoRedis(addrs, false) }},
}

type rueidisClient struct{ c rueidis.Client }

// openRueidis: flush is how long it waits for more calls before it sends.
func openRueidis(addrs []string, flush time.Duration) (client, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, MaxFlushDelay: flush})
	return rueidisClient{c}, err
}

func (r rueidisClient) call(ctx context.Context, sha string, keys, args []string) rueidis.RedisResult {
	command := r.c.B().Evalsha().Sha1(sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	return r.c.Do(ctx, command)
}

func (r rueidisClient) number(ctx context.Context, sha string, keys, args []string) (int64, error) {
	return r.call(ctx, sha, keys, args).AsInt64()
}

func (r rueidisClient) strings(ctx context.Context, sha string, keys, args []string) ([]string, error) {
	return r.call(ctx, sha, keys, args).AsStrSlice()
}

func (r rueidisClient) close() { r.c.Close() }

type goRedisClient struct {
	redis.Cmdable
	c redis.UniversalClient
}

func openGoRedis(addrs []string, pipelined bool) (client, error) {
	if len(addrs) == 1 {
		c := redis.NewClient(&redis.Options{Addr: addrs[0]})
		if !pipelined {
			return goRedisClient{c, c}, nil
		}
		auto, err := c.AutoPipeline()
		return goRedisClient{auto, c}, err
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	if !pipelined {
		return goRedisClient{c, c}, nil
	}
	auto, err := c.AutoPipeline()
	return goRedisClient{auto, c}, err
}

func (g goRedisClient) call(ctx context.Context, sha string, keys, args []string) *redis.Cmd {
	list := make([]any, len(args))
	for i, arg := range args {
		list[i] = arg
	}
	return g.EvalSha(ctx, sha, keys, list...)
}

func (g goRedisClient) number(ctx context.Context, sha string, keys, args []string) (int64, error) {
	return g.call(ctx, sha, keys, args).Int64()
}

func (g goRedisClient) strings(ctx context.Context, sha string, keys, args []string) ([]string, error) {
	return g.call(ctx, sha, keys, args).StringSlice()
}

func (g goRedisClient) close() { _ = g.c.Close() }
