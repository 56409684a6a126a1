// Command onlyonce has ten threads wait for the same orders, all due at one
// instant. By hand each thread reads the head of a sorted set in a loop, compares
// its time, and removes it: without care for who removed it, several get the same
// order; with it, ten threads still spin on one key, and times are whole seconds.
// Here taking an order is one step in Redis, so that one thread gets it; threads
// sleep until the first is due; and times are milliseconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/redisstore"
)

const (
	queue   = "orders"
	threads = 10
	orders  = 1000
)

func main() {
	given := flag.String("redis", "", "URL of a Redis, such as redis://127.0.0.1:6379; without it one is started")
	flag.Parse()
	if *given == "" {
		*given = flag.Arg(0) // the URL alone will do
	}
	url, end := redisURL(*given)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, url)
	stop()
	end()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex // of the next three
	seen, runs, last := make(map[string]bool), 0, time.Duration(0)
	clients, ends := make([]*duetime.Client, threads), make(chan error, threads)
	for n := range clients {
		// A client of its own for each, so that they meet in Redis and nowhere else.
		client, err := open(ctx, url)
		if err != nil {
			return err
		}
		defer client.Close()
		clients[n] = client
		worker := duetime.NewWorker(client, &duetime.WorkerOptions{Concurrency: 1})
		worker.Handle(queue, func(_ context.Context, t *duetime.Task) error {
			mu.Lock()
			defer mu.Unlock()
			runs++
			seen[t.ID] = true
			last = max(last, t.Lateness())
			if len(seen) == orders {
				time.AfterFunc(300*time.Millisecond, stop) // a second run would show until then
			}
			return nil
		})
		go func() { ends <- worker.Run(ctx) }()
	}

	due := time.Now().Add(time.Second)
	tasks := make([]duetime.NewTask, orders)
	for n := range tasks {
		tasks[n] = duetime.NewTask{ID: fmt.Sprintf("order-%d", n+1), Due: due}
	}
	answers, err := clients[0].ScheduleMany(ctx, queue, tasks)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	if err != nil {
		return err
	}
	for range threads {
		if err := <-ends; err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%d orders, %d threads, %d runs, the last %v after its time\n", len(seen), threads, runs, last.Round(time.Millisecond))
	return err
}

func open(ctx context.Context, url string) (*duetime.Client, error) {
	opts, err := redisstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts.Prefix = "example-onlyonce" // keys of its own
	st, err := redisstore.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return duetime.NewClient(st, nil), nil
}

// redisURL is the URL that was given, or that of a Redis that is started here. This
// function can not be copied, because testserver belongs to duetime itself.
func redisURL(given string) (url string, end func()) {
	if given != "" {
		return given, func() {}
	}
	r, err := testserver.StartRedis(nil)
	if err != nil {
		log.Fatalf("%v; or name a Redis with -redis redis://HOST:PORT", err)
	}
	return "redis://" + r.Addr, r.Close
}
