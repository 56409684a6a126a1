// Command missedevents releases reservations that were not paid for, woken by
// what Redis tells of keys that expire. By hand each reservation is a key of its
// own, and its expiry is the task: an event that comes while the listener is away
// is gone for good, and with many keys it comes late, because Redis notices an
// expiry when it gets round to it. Here the event only wakes. The tasks are kept,
// so that those whose time came while nobody listened run as soon as somebody does.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/redisstore"
)

const (
	queue = "reservations"
	flats = 20
	step  = 100 * time.Millisecond // from one reservation to the next
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
	site, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer site.Close()
	reserved := make(chan error, 1)
	go func() { // one reservation after the other, in connections of its own
		var err error
		for n := 1; n <= flats && err == nil; n++ {
			time.Sleep(step)
			_, err = site.Schedule(ctx, queue, duetime.NewTask{ID: fmt.Sprintf("flat-%02d", n), Delay: 2 * step})
		}
		reserved <- err
	}()

	released, runs := make(map[string]bool), 0
	listen := func(until int) error { // works until so many flats are released in all
		client, err := open(ctx, url)
		if err != nil {
			return err
		}
		defer client.Close()
		worker := duetime.NewWorker(client, &duetime.WorkerOptions{Concurrency: 1})
		worker.Handle(queue, func(_ context.Context, t *duetime.Task) error {
			runs++
			released[t.ID] = true
			fmt.Fprintf(out, "%s released, %v after its time\n", t.ID, t.Lateness().Round(time.Microsecond))
			if len(released) == until {
				worker.Stop()
			}
			return nil
		})
		return worker.Run(ctx)
	}
	if err := listen(5); err != nil {
		return err
	}
	fmt.Fprintln(out, "now nobody listens, for", 6*step)
	time.Sleep(6 * step)
	if err := listen(flats); err != nil {
		return err
	}
	if err := <-reserved; err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d flats released, %d runs\n", len(released), runs)
	return err
}

func open(ctx context.Context, url string) (*duetime.Client, error) {
	opts, err := redisstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts.Prefix = "example-missedevents" // keys of its own
	opts.Wake = redisstore.WakeKeyspace  // or wake=keyspace in the URL
	opts.Warn = func(message string) { log.Print(message) }
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
