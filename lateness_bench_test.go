package duetime_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/memstore"
)

var latenessFor = flag.Duration("lateness.for", 3*time.Second, "how long BenchmarkLateness lets tasks come due")

// BenchmarkLateness reports how late handlers start, with 2,000 tasks a second
// that are due at random instants, first all scheduled before, then each
// scheduled half a second ahead by another goroutine while the others run.
//
//	go test -run '^$' -bench Lateness -benchtime 1x -lateness.for 30s .
func BenchmarkLateness(b *testing.B) {
	stores := map[string]func(b *testing.B) store.Store{
		"mem": func(*testing.B) store.Store { return memstore.New(nil) },
		"disk": func(b *testing.B) store.Store {
			st, err := diskstore.Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			return st
		},
	}
	for _, name := range []string{"mem", "disk"} {
		for _, ahead := range []time.Duration{0, 500 * time.Millisecond} {
			label := "scheduled=before"
			if ahead > 0 {
				label = "scheduled=meanwhile"
			}
			b.Run("store="+name+"/"+label, func(b *testing.B) {
				for range b.N {
					measureLateness(b, stores[name](b), ahead)
				}
			})
		}
	}
}

func measureLateness(b *testing.B, st store.Store, ahead time.Duration) {
	const rate = 2000
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := duetime.NewClient(st, &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
	defer client.Close()
	worker := duetime.NewWorker(client, nil)
	var mu sync.Mutex
	var late []time.Duration
	n := int(latenessFor.Seconds() * rate)
	all := make(chan struct{})
	worker.Handle("q", func(_ context.Context, task *duetime.Task) error {
		l := time.Since(task.Due)
		mu.Lock()
		defer mu.Unlock()
		if late = append(late, l); len(late) == n {
			close(all)
		}
		return nil
	})
	start := time.Now().Add(2 * time.Second)
	dues := make([]time.Time, n)
	for i := range dues {
		dues[i] = start.Add(rand.N(*latenessFor)).Truncate(time.Millisecond)
	}
	payload := make([]byte, 100)
	task := func(i int) duetime.NewTask {
		return duetime.NewTask{ID: fmt.Sprint(i), Payload: payload, Due: dues[i]}
	}
	if ahead == 0 {
		tasks := make([]duetime.NewTask, n)
		for i := range tasks {
			tasks[i] = task(i)
		}
		if _, err := client.ScheduleMany(ctx, "q", tasks); err != nil {
			b.Fatal(err)
		}
	} else {
		slices.SortFunc(dues, time.Time.Compare)
		go func() {
			var wg sync.WaitGroup
			defer wg.Wait()
			for i := range dues {
				time.Sleep(time.Until(dues[i].Add(-ahead)))
				wg.Go(func() {
					if _, err := client.Schedule(ctx, "q", task(i)); err != nil {
						b.Error(err)
					}
				})
			}
		}()
	}
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	<-all
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	slices.Sort(late)
	ms := func(q float64) float64 { return float64(late[int(q*float64(n-1))]) / 1e6 }
	if late[0] < 0 {
		b.Errorf("a task was %v early", -late[0])
	}
	b.ReportMetric(ms(0.5), "p50-ms")
	b.ReportMetric(ms(0.99), "p99-ms")
	b.ReportMetric(ms(0.999), "p99.9-ms")
	b.ReportMetric(ms(1), "max-ms")
	b.ReportMetric(0, "ns/op")
}
