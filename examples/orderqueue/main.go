// Command orderqueue cancels orders that are not paid in time, with a pool of
// workers over Redis. By hand this is a sorted set of order numbers, a hash of
// their data and a script that pops ten every five seconds: the newest first, so
// that old orders starve; two orders a second at most; all with the same delay, by
// the caller's clock; and whoever dies after popping has lost ten orders for good.
// Here the oldest comes first, at once, each after a delay of its own by the clock
// of Redis, and what a dead worker held is handed out again.
package main

import (
	"context"
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
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/redisstore"
)

// order is the payload: what lay in the hash.
type order struct {
	Buyer string
	Cents int
}

var timeouts = duetime.QueueOf[order]("order-timeout", nil)

const (
	overdue = 100 // were due while nobody worked
	soon    = 50  // are due in a moment
	pool    = 8   // orders that are worked on at the same time
	lost    = 10  // orders in the hands of a worker that dies
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
	opts, err := redisstore.ParseURL(url)
	if err != nil {
		return err
	}
	opts.Prefix = "example-orderqueue" // keys of its own
	st, err := redisstore.Open(ctx, opts)
	if err != nil {
		return err
	}
	client := duetime.NewClient(st, nil)
	defer client.Close()

	for n := range overdue + soon {
		task := duetime.NewTask{ID: fmt.Sprintf("order-%03d", n), Due: time.Now().Add(time.Duration(n-overdue) * time.Second)}
		if n >= overdue { // 500 ms, 510 ms and so on: no two are the same
			task.Due, task.Delay = time.Time{}, 500*time.Millisecond+time.Duration(n-overdue)*10*time.Millisecond
		}
		if _, err := timeouts.Schedule(ctx, client, order{Buyer: fmt.Sprintf("buyer %d", n%7), Cents: 100 * n}, task); err != nil {
			return err
		}
	}

	// A worker takes ten orders and is never heard of again.
	if _, err := st.Claim(ctx, []store.ClaimRequest{{Queue: timeouts.Name(), Max: lost, Lease: time.Second, Worker: "one that dies"}}); err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worker := duetime.NewWorker(client, &duetime.WorkerOptions{Concurrency: pool})
	var mu sync.Mutex
	done := make(map[string]bool)
	timeouts.Handle(worker, func(_ context.Context, t *duetime.Task, o order) error {
		mu.Lock()
		defer mu.Unlock()
		done[t.ID] = true // a real one: cancel it in the database, if it is still unpaid
		fmt.Fprintf(out, "%s of %s cancelled, attempt %d, %v after its time\n", t.ID, o.Buyer, t.Attempt, t.Lateness().Round(time.Microsecond))
		if len(done) == overdue+soon {
			stop()
		}
		return nil
	})
	if err := worker.Run(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d orders cancelled\n", len(done))
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
