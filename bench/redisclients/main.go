// Command redisclients compares two Redis clients, rueidis and go-redis, on what
// the Redis store does: it calls scripts that write a task, that write a hundred,
// and that return a hundred. It starts its own servers, on 127.0.0.1, and prints
// the table of docs/decisions/redis-client.md.
//
//	cd bench && go run ./redisclients
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

func main() {
	runs := flag.Int("runs", 5, "runs of each client; the table has the medians")
	length := flag.Duration("length", 2*time.Second, "how long one run measures")
	flag.Parse()
	if err := compare(context.Background(), *runs, *length); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A server is what the clients talk to.
type server struct {
	name  string
	addrs []string // more than one for a cluster
	nodes []*testserver.RedisServer
}

func startServers() (list []server, stop func(), err error) {
	aof := testserver.RedisOptions{AOF: true} // synced every second
	one, err := testserver.StartRedis(&aof)
	if err != nil {
		return nil, nil, err
	}
	cluster, err := testserver.StartRedisCluster(&testserver.RedisClusterOptions{RedisOptions: aof})
	if err != nil {
		one.Close()
		return nil, nil, err
	}
	list = []server{
		{"standalone", []string{one.Addr}, []*testserver.RedisServer{one}},
		{"3 masters", cluster.Addrs(), cluster.Nodes},
	}
	return list, func() { one.Close(); cluster.Close() }, nil
}

func compare(ctx context.Context, runs int, length time.Duration) error {
	servers, stop, err := startServers()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println("| server | operation | client | calls/s (least–most) | tasks/s | client CPU µs/call | p50 ms | p99 ms | allocations/call |")
	fmt.Println("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, s := range servers {
		for _, op := range operations() {
			results := map[string][]result{}
			// The clients take turns, so that what else the machine does hits
			// them alike.
			for run := range runs {
				for i := range clients {
					kind := clients[(i+run)%len(clients)]
					r, err := measure(ctx, s, op, kind, length)
					if err != nil {
						return fmt.Errorf("%s, %s, %s: %w", s.name, op.name, kind.name, err)
					}
					results[kind.name] = append(results[kind.name], r)
				}
			}
			for _, kind := range clients {
				fmt.Printf("| %s | %s | %s | %s |\n", s.name, op.name, kind.name, summary(results[kind.name], op.tasks))
			}
		}
	}
	return nil
}
