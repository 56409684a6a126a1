package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// B52: looking at a large queue holds nobody up. The last page costs what the
// first one does, counting and cancelling by id cost the same whatever lies there,
// and no script reads more than it was asked for.
func TestLookingIsCheap(t *testing.T) {
	server := testserver.Redis(t, nil)
	s := open(t, Options{Addrs: []string{server.Addr}})
	ctx := context.Background()
	const n = 20_000
	due := time.Now().Add(time.Hour)
	tasks := make([]store.NewTask, 1000)
	for from := 0; from < n; from += len(tasks) {
		for i := range tasks {
			// Ten at a time are due together.
			tasks[i] = store.NewTask{Queue: "q", ID: fmt.Sprintf("%06d", from+i), Payload: make([]byte, 500), Due: due.Add(time.Duration((from+i)/10) * time.Millisecond)}
		}
		if _, err := s.Schedule(ctx, tasks); err != nil {
			t.Fatal(err)
		}
	}
	// commands is how many commands the server carries out for f, those in scripts
	// included.
	commands := func(f func()) int {
		t.Helper()
		do(t, server, "CONFIG", "RESETSTAT")
		f()
		stats, err := server.Info("commandstats")
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for name, text := range stats {
			calls, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
			if n, err := strconv.Atoi(calls); err == nil && !strings.Contains(name, "info") && !strings.Contains(name, "config") {
				sum += n
			}
		}
		return sum
	}
	cursor, seen := "", 0
	var costs []int
	for {
		var page store.ListPage
		costs = append(costs, commands(func() {
			var err error
			if page, err = s.List(ctx, store.ListRequest{Queue: "q", State: store.StateScheduled, Cursor: cursor, Limit: 1000}); err != nil {
				t.Fatal(err)
			}
		}))
		for i, task := range page.Tasks {
			if want := fmt.Sprintf("%06d", seen+i); task.ID != want || task.Payload != nil {
				t.Fatalf("task %d of the list is %s with %d bytes", seen+i, task.ID, len(task.Payload))
			}
		}
		seen += len(page.Tasks)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if seen != n {
		t.Fatalf("%d tasks in all pages, of %d", seen, n)
	}
	// A page reads its records, finds its place by halving, and little else.
	for i, c := range costs {
		if c > 1000+100 {
			t.Errorf("page %d took %d commands", i+1, c)
		}
	}
	if c := commands(func() { _, _ = s.Stats(ctx, "q") }); c > 30 {
		t.Errorf("counting took %d commands", c)
	}
	if c := commands(func() {
		if r, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "q", ID: fmt.Sprintf("%06d", n/2)}}); err != nil || r[0].Outcome != store.Cancelled {
			t.Error(r, err)
		}
	}); c > 30 {
		t.Errorf("a cancel took %d commands", c)
	}
}
