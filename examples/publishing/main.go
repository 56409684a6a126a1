// Command publishing puts articles online at the minute their authors chose. Ten
// consumers share the queue, and each article is published once, by one of them. If
// that one died with it, another would take over when its lease had run out.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store/diskstore"
)

const (
	queue     = "publish"
	articles  = 4
	consumers = 10
)

func main() {
	step := flag.Duration("step", time.Second, "time between one article and the next")
	flag.Parse()
	dir, err := os.MkdirTemp("", "publishing")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), os.Stdout, dir, *step); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, dir string, step time.Duration) error {
	st, err := diskstore.Open(dir, nil)
	if err != nil {
		return err
	}
	client := duetime.NewClient(st, nil)
	defer client.Close()

	// An instant, not a delay: an author says "at seven", not "in nine hours".
	start := time.Now()
	var all []duetime.NewTask
	for n := range articles {
		all = append(all, duetime.NewTask{
			ID:      fmt.Sprintf("article-%d", n+1),
			Payload: fmt.Appendf(nil, "On being number %d", n+1),
			Due:     start.Add(time.Duration(n+1) * step),
		})
	}
	answers, err := client.ScheduleMany(ctx, queue, all)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil { // each stands for itself: the others are scheduled
			return a.Err
		}
	}

	// An author has second thoughts: the last article comes half a step earlier.
	last := all[articles-1]
	if _, err := client.RescheduleAt(ctx, queue, last.ID, last.Due.Add(-step/2)); err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var published atomic.Int64
	var working sync.WaitGroup
	failed := make(chan error, consumers)
	for n := range consumers {
		worker := duetime.NewWorker(client, &duetime.WorkerOptions{Name: fmt.Sprintf("consumer-%d", n+1), Concurrency: 1})
		worker.Handle(queue, func(_ context.Context, t *duetime.Task) error {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(out, "%s published %s, %q, %v after its time\n", t.Worker, t.ID, t.Payload, t.Lateness().Round(time.Microsecond))
			if published.Add(1) == articles {
				stop()
			}
			return nil
		})
		working.Go(func() { failed <- worker.Run(ctx) })
	}
	working.Wait()
	for range consumers {
		if err := <-failed; err != nil {
			return err
		}
	}
	stats, err := client.Stats(context.WithoutCancel(ctx), queue)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d published, %d left\n", published.Load(), stats.Scheduled+stats.Ready+stats.Leased+stats.Dead)
	return err
}
