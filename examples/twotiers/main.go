// Command twotiers keeps tasks in MySQL and the order of the next minutes in Redis.
// By hand this is a job that copies what is due soon into a sorted set every five
// minutes: a task that is scheduled into the minutes already copied is missed, one
// that is cancelled after it was copied runs, and when Redis is lost nothing runs
// until the next copy. Here a task that is due at once, a cancelled one and a Redis
// that is emptied in the middle make no difference: MySQL decides at each hand-out.
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
	"github.com/duetime/duetime/store/mysqlstore"
	"github.com/duetime/duetime/store/redisstore"
	"github.com/duetime/duetime/store/tieredstore"
)

const queue = "twotiers:reminders"

// servers are where the tasks are.
type servers struct {
	mysql, redis string // URLs
	empty        func() error
}

func main() {
	mysql := flag.String("mysql", "", "URL of a database, such as mysql://root@127.0.0.1:3306/shop; without it a MariaDB is started")
	redis := flag.String("redis", "", "URL of a Redis, such as redis://127.0.0.1:6379; without it one is started, and emptied in the middle")
	flag.Parse()
	s, end, err := start(*mysql, *redis)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err = run(ctx, os.Stdout, s)
	stop()
	end()
	if err != nil {
		log.Fatal(err)
	}
}

// open makes one store of two.
func open(ctx context.Context, s servers) (*duetime.Client, error) {
	cold, err := mysqlstore.Open(ctx, s.mysql, nil)
	if err != nil {
		return nil, err
	}
	opts, err := redisstore.ParseURL(s.redis)
	if err != nil {
		_ = cold.Close()
		return nil, err
	}
	st, err := tieredstore.Open(ctx, cold, func(ctx context.Context) (tieredstore.Hot, error) {
		r, err := redisstore.Open(ctx, opts)
		if err != nil {
			return nil, err
		}
		return r.Windows(), nil
	}, nil)
	if err != nil {
		_ = cold.Close()
		return nil, err
	}
	return duetime.NewClient(st, nil), nil
}

func run(ctx context.Context, out io.Writer, s servers) error {
	client, err := open(ctx, s)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	const soon, late, cancelled, far = 100, 100, 50, 1000
	var mu sync.Mutex
	ran := make(map[string]int)
	worker := duetime.NewWorker(client, nil)
	worker.Handle(queue, func(_ context.Context, t *duetime.Task) error {
		mu.Lock()
		defer mu.Unlock()
		ran[t.ID]++
		if len(ran) == soon+late-cancelled {
			// Anything that ought not to run has a moment in which to do so.
			time.AfterFunc(500*time.Millisecond, stop)
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()

	schedule := func(name string, n int, delay time.Duration) error {
		tasks := make([]duetime.NewTask, n)
		for i := range tasks {
			tasks[i] = duetime.NewTask{ID: fmt.Sprint(name, " ", i), Delay: delay}
		}
		_, err := client.ScheduleMany(ctx, queue, tasks)
		return err
	}
	// Those of next month are in MySQL alone.
	if err := schedule("far", far, 30*24*time.Hour); err != nil {
		return err
	}
	if err := schedule("late", late, 2*time.Second); err != nil {
		return err
	}
	// They are in the window by now; half of them are cancelled.
	time.Sleep(500 * time.Millisecond)
	for i := range cancelled {
		if err := client.Cancel(ctx, queue, fmt.Sprint("late ", i)); err != nil {
			return err
		}
	}
	if err := s.empty(); err != nil {
		return err
	}
	// And these are due within the minutes that were copied already.
	if err := schedule("soon", soon, 200*time.Millisecond); err != nil {
		return err
	}
	if err := <-done; err != nil {
		return err
	}
	twice, wrong := 0, 0
	for id, n := range ran {
		if n > 1 {
			twice++
		}
		var i int
		if k, _ := fmt.Sscanf(id, "late %d", &i); k == 1 && i < cancelled {
			wrong++
		}
	}
	stats, err := client.Stats(context.Background(), queue)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d ran, %d of them twice, %d after they were cancelled; %d are for next month\n", len(ran), twice, wrong, stats.Scheduled)
	_, err = client.Purge(context.Background(), queue, duetime.StateScheduled)
	return err
}

// start starts the servers that were not given. This function can not be copied,
// because testserver belongs to duetime itself.
func start(mysql, redis string) (s servers, end func(), err error) {
	s = servers{mysql: mysql, redis: redis, empty: func() error { return nil }}
	var ends []func()
	end = func() {
		for _, f := range ends {
			f()
		}
	}
	if s.mysql == "" {
		m, err := testserver.StartMariaDB(nil)
		if err != nil {
			return s, end, fmt.Errorf("%w; or name a database with -mysql mysql://USER:PASSWORD@HOST:PORT/DATABASE", err)
		}
		ends = append(ends, m.Close)
		s.mysql = "mysql://root@" + m.Addr + "/" + m.Database
	}
	if s.redis == "" {
		r, err := testserver.StartRedis(nil)
		if err != nil {
			end()
			return s, end, fmt.Errorf("%w; or name a Redis with -redis redis://HOST:PORT", err)
		}
		ends = append(ends, r.Close)
		s.redis = "redis://" + r.Addr
		s.empty = func() error {
			_, err := r.Do("FLUSHALL")
			return err
		}
	}
	return s, end, nil
}
