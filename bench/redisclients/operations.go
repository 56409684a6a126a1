package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/duetime/duetime/internal/testserver"
)

const (
	// queues are spread over the masters of a cluster by their hash tags.
	queues = 12
	// ids bounds how many tasks a queue has, so that a run does not fill memory.
	ids = 20_000
	// batch is how many tasks a call carries that carries many.
	batch = 100
)

// putScript writes tasks: a hash field and a member of a sorted set each.
const putScript = `
for i = 1, #ARGV, 3 do
	redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
	redis.call('ZADD', KEYS[2], ARGV[i + 1], ARGV[i])
end
return #ARGV / 3`

// takeScript returns the records of the first tasks.
const takeScript = `return redis.call('HMGET', KEYS[1], unpack(redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1)))`

// record is what is kept of a task, 100 bytes.
var record = strings.Repeat("0123456789", 10)

// An operation is one kind of call.
type operation struct {
	name       string
	script     string
	goroutines int
	tasks      int // that a call carries
	call       func(ctx context.Context, c client, sha string, rnd *rand.Rand) error
}

func operations() []operation {
	return []operation{
		{"write 1, 64 goroutines", putScript, 64, 1, put(1)},
		{"write 100, 8 goroutines", putScript, 8, batch, put(batch)},
		{"return 100, 8 goroutines", takeScript, 8, batch, take},
	}
}

func keys(queue int) []string {
	tag := "{q" + strconv.Itoa(queue) + "}"
	return []string{tag + ":tasks", tag + ":due"}
}

func put(n int) func(context.Context, client, string, *rand.Rand) error {
	return func(ctx context.Context, c client, sha string, rnd *rand.Rand) error {
		args := make([]string, 0, 3*n)
		for range n {
			args = append(args, strconv.Itoa(rnd.IntN(ids)), strconv.FormatInt(rnd.Int64N(1e12), 10), record)
		}
		got, err := c.number(ctx, sha, keys(rnd.IntN(queues)), args)
		if err == nil && got != int64(n) {
			err = fmt.Errorf("wrote %d, want %d", got, n)
		}
		return err
	}
}

func take(ctx context.Context, c client, sha string, rnd *rand.Rand) error {
	got, err := c.strings(ctx, sha, keys(rnd.IntN(queues)), []string{strconv.Itoa(batch)})
	if err == nil && (len(got) != batch || got[batch-1] != record) {
		err = fmt.Errorf("returned %d records, want %d", len(got), batch)
	}
	return err
}

// prepare empties a server, loads the script on every node, and gives every
// queue as many tasks as one call takes.
func prepare(s server, script string) (sha string, err error) {
	for _, node := range s.nodes {
		if _, err := node.Do("FLUSHALL"); err != nil {
			return "", err
		}
		answer, err := node.Do("SCRIPT", "LOAD", script)
		if err != nil {
			return "", err
		}
		sha = fmt.Sprint(answer)
	}
	for queue := range queues {
		k := keys(queue)
		args := []any{"EVAL", putScript, 2, k[0], k[1]}
		for i := range batch {
			args = append(args, i, i, record)
		}
		if err := onOwner(s.nodes, args); err != nil {
			return "", err
		}
	}
	return sha, nil
}

// onOwner sends a command to the node that has its keys.
func onOwner(nodes []*testserver.RedisServer, args []any) (err error) {
	for _, node := range nodes {
		if _, err = node.Do(args...); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
			return err
		}
	}
	return err
}
