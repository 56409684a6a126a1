// Command manyconsumers sends reminders from one queue that ten consumers share
// over Redis. By hand each consumer asks every second for the first entry of a
// sorted set, removes it, and whoever removed it does the work: one task a second
// each; no payload; and a task is lost when its consumer dies, or fails, between
// the two. Here a consumer is woken when a task is due and holds it on a lease, an
// error brings the task back, and each has a payload and counts its attempts.
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
	queue     = "reminders"
	consumers = 10 // processes, say
	reminders = 4
)

func main() {
	given := flag.String("redis", "", "URL of a Redis, such as redis://127.0.0.1:6379; without it one is started")
	step := flag.Duration("step", 500*time.Millisecond, "time between one reminder and the next")
	flag.Parse()
	if *given == "" {
		*given = flag.Arg(0) // the URL alone will do
	}
	url, end := redisURL(*given)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, url, *step)
	stop()
	end()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string, step time.Duration) error {
	producer, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer producer.Close()
	for n := 1; n <= reminders; n++ {
		payload := fmt.Appendf(nil, "pay order %d", n)
		if _, err := producer.Schedule(ctx, queue, duetime.NewTask{ID: fmt.Sprintf("reminder-%d", n), Payload: payload, Delay: time.Duration(n) * step}); err != nil {
			return err
		}
	}

	// Each consumer has connections of its own, as if it were a process of its own.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	sent, ends := 0, make(chan error, consumers)
	for n := range consumers {
		client, err := open(ctx, url)
		if err != nil {
			return err
		}
		defer client.Close()
		worker := duetime.NewWorker(client, &duetime.WorkerOptions{Name: fmt.Sprintf("consumer-%d", n+1), Concurrency: 1})
		worker.Handle(queue, func(_ context.Context, t *duetime.Task) error {
			mu.Lock()
			defer mu.Unlock()
			if t.ID == "reminder-2" && t.Attempt == 1 { // the text message could not be sent
				fmt.Fprintf(out, "%s failed with %s, which comes back\n", t.Worker, t.ID)
				return duetime.RetryIn(step/4, errors.New("no network"))
			}
			fmt.Fprintf(out, "%s sent %s, %q, attempt %d, %v after its time\n", t.Worker, t.ID, t.Payload, t.Attempt, t.Lateness().Round(time.Microsecond))
			if sent++; sent == reminders {
				stop()
			}
			return nil
		})
		go func() { ends <- worker.Run(ctx) }()
	}
	for range consumers {
		if err := <-ends; err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%d reminders sent by %d consumers\n", sent, consumers)
	return err
}

func open(ctx context.Context, url string) (*duetime.Client, error) {
	opts, err := redisstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts.Prefix = "example-manyconsumers" // keys of its own
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
