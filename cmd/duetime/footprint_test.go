package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// What a store is said to take is more by about what came in. Where it can not be
// asked it is not guessed.
func TestFootprint(t *testing.T) {
	t.Parallel()
	const n, payload = 5000, 1000
	grows := func(t *testing.T, url string, inMemory bool) {
		ctx := context.Background()
		st, err := openStore(ctx, url, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		footprint, done, err := footprintOf(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(done)
		taken := func() int64 {
			memory, disk, err := footprint(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if inMemory {
				return memory
			}
			return disk
		}
		before := taken()
		for from := 0; from < n; from += 1000 {
			var tasks []store.NewTask
			for i := from; i < from+1000; i++ {
				tasks = append(tasks, store.NewTask{Queue: "q", ID: fmt.Sprint(i), Payload: make([]byte, payload), Delay: time.Hour})
			}
			if _, err := st.Schedule(ctx, tasks); err != nil {
				t.Fatal(err)
			}
		}
		if grown := taken() - before; grown < n*payload || grown > 5*n*payload {
			t.Errorf("%d tasks with %d bytes each take %d", n, payload, grown)
		}
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		testserver.Need(t, "redis-server")
		grows(t, "redis://"+testserver.Redis(t, nil).Addr, true)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		testserver.NeedMariaDB(t)
		m := testserver.MariaDB(t, nil)
		grows(t, "mysql://root@"+m.Addr+"/"+m.Database, false)
	})
	t.Run("not known", func(t *testing.T) {
		t.Parallel()
		footprint, done, err := footprintOf(context.Background(), "http://127.0.0.1:1")
		if footprint != nil || err != nil {
			t.Errorf("a footprint of a server, or %v", err)
		}
		done()
	})
}
