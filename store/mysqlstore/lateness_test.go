package mysqlstore

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/bench/benchtest"
	"github.com/duetime/duetime/internal/testserver"
)

// BenchmarkLateness says how late handlers start, with 2,000 tasks a second that are
// scheduled one by one while others run, each up to a second ahead, on a server that
// syncs each commit. In one process a worker hears of them at once; with two, one
// schedules and the other runs, and learns of them by looking. Take -benchtime 20000x
// for ten seconds.
func BenchmarkLateness(b *testing.B) {
	testserver.NeedMariaDB(b)
	m := testserver.MariaDB(b, &testserver.MariaDBOptions{Config: []string{"--innodb-buffer-pool-size=512M"}})
	for _, c := range []struct {
		name      string
		processes int
		least     time.Duration // how far ahead at least
	}{{"processes=1", 1, 10 * time.Millisecond}, {"processes=2", 2, 10 * time.Millisecond}, {"processes=2/ahead=300ms", 2, 300 * time.Millisecond}} {
		b.Run(c.name, func(b *testing.B) {
			url := databaseOn(b, m)
			producing := duetime.NewClient(openForSuite(b, url, nil), &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
			defer producing.Close()
			consuming := producing
			if c.processes == 2 {
				consuming = duetime.NewClient(openForSuite(b, url, nil), &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
				defer consuming.Close()
			}
			benchtest.Lateness{Producing: producing, Consuming: consuming, Rate: 2000, Least: c.least}.Run(b)
		})
	}
}

// What a worker without work costs the server, once it has been quiet for a while:
// what docs/operations.md says, and no more.
func TestIdleWorkerCostsLittle(t *testing.T) {
	if os.Getenv("DUETIME_LONG") == "" {
		t.Skip("long: run with make test-long")
	}
	testserver.NeedMariaDB(t)
	m := testserver.MariaDB(t, nil)
	s := openForSuite(t, databaseOn(t, m), nil)
	client := duetime.NewClient(s, nil)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	worker := duetime.NewWorker(client, nil)
	worker.Handle("idle", func(context.Context, *duetime.Task) error { return nil })
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	if _, err := client.Schedule(ctx, "idle", duetime.NewTask{Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	asked := func() (n float64) {
		var name string
		if err := admin(t, m, "").QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	rate := func(window time.Duration) float64 {
		before := asked()
		time.Sleep(window)
		return (asked() - before) / window.Seconds()
	}
	time.Sleep(time.Second)
	busy := rate(5 * time.Second)
	time.Sleep(lookCalm)
	calm := rate(10 * time.Second)
	t.Logf("statements a second of one worker on one queue: %.1f after something has happened, %.1f when it is quiet", busy, calm)
	if busy > 60 || calm > 20 {
		t.Errorf("%.1f and %.1f statements a second, want no more than 60 and 20", busy, calm)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
