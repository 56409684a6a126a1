// Command crontimer lets out what is due at the beat of a timer, and changes the
// timer while it runs. By hand a cron expression lies in a database and is read
// again before each round, which removes all that is due from a sorted set and
// then closes it in one statement: whoever dies or fails in between has lost the
// round, since nothing is acknowledged or tried again. Here the timer is a setting
// of the queue, which every worker obeys within a second, and each task that was
// let out is acknowledged, or comes back, by itself.
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
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/redisstore"
)

const (
	queue = "close-orders"
	batch = 5 // orders that become due under each timer
)

// timers are the settings that the queue gets, one after the other. The last lets
// every task out when it is due.
var timers = []string{"every 2s", "CRON_TZ=Asia/Shanghai * * * * * *", "immediate"}

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
	opts, err := redisstore.ParseURL(url)
	if err != nil {
		return err
	}
	opts.Prefix = "example-crontimer" // keys of its own
	st, err := redisstore.Open(ctx, opts)
	if err != nil {
		return err
	}
	client := duetime.NewClient(st, nil)
	defer client.Close()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	closed := make(chan string, len(timers)*batch)
	worker := duetime.NewWorker(client, &duetime.WorkerOptions{Concurrency: 1})
	worker.Handle(queue, func(_ context.Context, t *duetime.Task) error {
		if t.ID == "order-1-3" && t.Attempt == 1 { // one of a round fails: the others do not care
			fmt.Fprintf(out, "%s could not be closed, and comes back\n", t.ID)
			return duetime.RetryIn(100*time.Millisecond, errors.New("the database is away"))
		}
		fmt.Fprintf(out, "%s was due at %s, closed at %s\n", t.ID, t.Due.Format("05.000"), t.ClaimedAt.Format("05.000"))
		closed <- t.ID
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()

	for round, timer := range timers {
		// The same from a shell, on any machine: duetime settings close-orders 'release=every 2s'
		if _, err := client.UpdateSettings(ctx, queue, func(s *duetime.Settings) { s.Release = timer }); err != nil {
			return err
		}
		fmt.Fprintf(out, "the timer is %q\n", timer)
		for n := range batch {
			task := duetime.NewTask{ID: fmt.Sprintf("order-%d-%d", round+1, n+1), Delay: time.Duration(n) * 100 * time.Millisecond}
			if _, err := client.Schedule(ctx, queue, task); err != nil {
				return err
			}
		}
		for range batch {
			select {
			case <-closed:
			case err := <-ended: // ctx has ended, or the worker could not begin
				return err
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d orders closed under %d timers\n", len(timers)*batch, len(timers))
	return err
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
