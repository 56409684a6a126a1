package mysqlstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// B52: looking at a large queue holds nobody up. The last page costs what the first
// one does, and counting, cancelling by id and claiming cost the same whatever lies
// there: the server counts the rows that it reads. No other test runs meanwhile.
func TestLookingIsCheap(t *testing.T) {
	s := open(t, database(t), nil)
	ctx := context.Background()
	const n = 20_000
	base := time.Now().Add(time.Hour).UnixMilli()
	fillRows(t, s, "orders", n, fmt.Sprintf("%d + FLOOR(n / 10)", base)) // ten at a time are due together
	db := admin(t, serverForAll(t), "")
	read := func() (sum int) {
		t.Helper()
		rows, err := db.Query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_first', 'Handler_read_key', 'Handler_read_last', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd', 'Handler_read_rnd_next')")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var value int
			if err := rows.Scan(&name, &value); err != nil {
				t.Fatal(err)
			}
			sum += value
		}
		return sum
	}
	asking := 0 // what asking reads itself
	before := read()
	asking = read() - before
	cost := func(f func()) int {
		t.Helper()
		before := read()
		f()
		return read() - before - asking
	}
	cursor, seen := "", 0
	for page := 1; ; page++ {
		var p store.ListPage
		c := cost(func() {
			var err error
			if p, err = s.List(ctx, store.ListRequest{Queue: "orders", State: store.StateScheduled, Cursor: cursor, Limit: 1000}); err != nil {
				t.Fatal(err)
			}
		})
		if c < 900 || c > 2*1000+200 {
			t.Errorf("page %d read %d rows", page, c)
		}
		for i, task := range p.Tasks {
			if want := fmt.Sprintf("order-%09d", seen+i); task.ID != want || task.Payload != nil {
				t.Fatalf("task %d of the list is %s with %d bytes", seen+i, task.ID, len(task.Payload))
			}
		}
		seen += len(p.Tasks)
		if cursor = p.Cursor; cursor == "" {
			break
		}
	}
	if seen != n {
		t.Fatalf("%d tasks in all pages, of %d", seen, n)
	}
	for what, f := range map[string]func() error{
		"counting": func() error { _, err := s.Stats(ctx, "orders"); return err },
		"a cancel": func() error {
			r, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "orders", ID: fmt.Sprintf("order-%09d", n/2)}})
			if err == nil && r[0].Outcome != store.Cancelled {
				err = fmt.Errorf("%v", r[0])
			}
			return err
		},
		"a claim of nothing": func() error {
			_, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 10, Lease: time.Minute}})
			return err
		},
	} {
		c := cost(func() {
			if err := f(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		})
		t.Logf("%s read %d rows", what, c)
		if c > 400 {
			t.Errorf("%s read %d rows", what, c)
		}
	}
}
