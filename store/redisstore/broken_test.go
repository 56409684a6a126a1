package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// B15, B31: what a hand edit or a careless restore leaves broken is met by the
// operations themselves, sweep or not: it holds up nothing, is not met for ever,
// and what can be told of it is put right.
func TestBrokenRecords(t *testing.T) {
	for name, shards := range map[string]int{"one shard": 1, "several shards": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokenRecords(t, open(t, Options{Addrs: []string{sharedServer(t).Addr}, Shards: shards}))
		})
	}
}

func brokenRecords(t *testing.T, s *Store) {
	ctx := context.Background()
	const queue = "orders"
	b := s.client.B
	at := func(id string) *shard {
		t.Helper()
		k, err := s.know(ctx, queue)
		must(t, err)
		return k.of(id)
	}
	edit := func(id string, command ...string) {
		t.Helper()
		must(t, s.client.Do(ctx, b().Arbitrary(command[0]).Keys(at(id).keys[keyNumber(t, command[1])]).Args(command[2:]...).Build()).Error())
	}
	record := func(id string) string {
		t.Helper()
		text, err := s.client.Do(ctx, b().Hget().Key(at(id).keys[1]).Field(id).Build()).ToString()
		must(t, err)
		return text
	}
	member := func(id string) string { return record(id)[1:8] + id }
	var tasks []store.NewTask
	for i := range 100 {
		tasks = append(tasks, store.NewTask{Queue: queue, ID: fmt.Sprint("good-", i), Payload: []byte("x"), Delay: 300 * time.Millisecond})
	}
	for _, id := range []string{
		"without record", "without index", "short record", "empty record", "wild record", "cut headers", "other sequence",
		"without lease", "wild lease", "lease without record", "lease without end", "leased wild record",
	} {
		n := store.NewTask{Queue: queue, ID: id, Payload: []byte("x"), Delay: 300 * time.Millisecond}
		if id == "cut headers" {
			n.Headers = map[string]string{"a": "b"}
		}
		if id == "without lease" || id == "wild lease" || id == "lease without record" || id == "lease without end" || id == "leased wild record" {
			n.Delay = 0
		}
		tasks = append(tasks, n)
	}
	results, err := s.Schedule(ctx, tasks)
	must(t, err)
	for i := range results {
		if results[i].Outcome != store.Created {
			t.Fatalf("%+v", results[i])
		}
	}
	leased, err := s.Claim(ctx, []store.ClaimRequest{{Queue: queue, Max: 5, Lease: 300 * time.Millisecond}})
	must(t, err)
	if len(leased[0].Tasks) != 5 {
		t.Fatalf("%d tasks were due at once", len(leased[0].Tasks))
	}
	edit("without lease", "HDEL", "leases", "without lease")
	edit("wild lease", "HSET", "leases", "wild lease", "x")
	edit("lease without record", "HDEL", "tasks", "lease without record")
	edit("lease without end", "ZREM", "ends", member("lease without end"))
	edit("leased wild record", "HSET", "tasks", "leased wild record", "garbage that is no record")
	edit("without record", "HDEL", "tasks", "without record")
	edit("without index", "ZREM", "due", member("without index"))
	edit("short record", "HSET", "tasks", "short record", "garbage")
	edit("empty record", "HSET", "tasks", "empty record", "")
	edit("wild record", "HSET", "tasks", "wild record", "\xff"+record("wild record")[1:])
	edit("cut headers", "HSET", "tasks", "cut headers", record("cut headers")[:21])
	edit("other sequence", "HSET", "tasks", "other sequence", "\x00\x01\x01\x01\x01\x01\x01\x01"+record("other sequence")[8:])
	// Entries that nobody made as they must be.
	edit("by hand", "ZADD", "due", "1", "short")
	edit("by hand", "ZADD", "due", "2", "much longer than that, but of nothing")
	edit("by hand", "ZADD", "due", "1.5", "")
	edit("by hand", "ZADD", "ends", "1", "x")
	edit("by hand", "ZADD", "dead", "1", "y")

	// All good ones come, as soon as they are due; each operation goes on meanwhile.
	came := make(map[string]int)
	var receipts []store.Settlement
	deadline := time.Now().Add(10 * time.Second)
	good := 0
	for good < 100 {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: queue, Max: 10, Lease: time.Minute}})
		must(t, err)
		for _, l := range r[0].Tasks {
			came[l.ID]++
			if len(l.ID) > 5 && l.ID[:5] == "good-" {
				good++
				receipts = append(receipts, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
			}
		}
		for _, state := range store.States() {
			page, err := s.List(ctx, store.ListRequest{Queue: queue, State: state, Limit: 7})
			must(t, err)
			for page.Cursor != "" {
				page, err = s.List(ctx, store.ListRequest{Queue: queue, State: state, Limit: 7, Cursor: page.Cursor})
				must(t, err)
			}
		}
		_, err = s.Stats(ctx, queue)
		must(t, err)
		if time.Now().After(deadline) {
			t.Fatalf("of 100 good tasks among broken ones %d came", good)
		}
		time.Sleep(5 * time.Millisecond)
	}
	settled, err := s.Settle(ctx, receipts)
	must(t, err)
	for i := range settled {
		if settled[i].Outcome != store.Acked {
			t.Fatalf("%+v", settled[i])
		}
	}

	// What has an index and no record is gone; what has a record is found by its id,
	// and comes, or was set aside.
	for id, want := range map[string]store.Outcome{
		"without record": store.NotFound, "lease without record": store.NotFound,
		"short record": store.NotFound, "empty record": store.NotFound, "wild record": store.NotFound, "leased wild record": store.NotFound,
		"without index": store.Found, "other sequence": store.Found, "without lease": store.Found, "wild lease": store.Found, "lease without end": store.Found,
	} {
		got, err := s.Get(ctx, []store.Key{{Queue: queue, ID: id}})
		must(t, err)
		if got[0].Outcome != want {
			t.Errorf("%s: %+v, want %v", id, got[0], want)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: queue, Max: 100, Lease: time.Minute}})
		must(t, err)
		for _, l := range r[0].Tasks {
			came[l.ID]++
		}
		if came["without index"] == 1 && came["other sequence"] == 1 && came["without lease"] == 1 && came["wild lease"] == 1 && came["lease without end"] == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("what could be put right does not come: %v", came)
		}
	}
	for id, n := range came {
		if n > 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
	// All broken names can be used again.
	for i := range tasks {
		tasks[i].Conflict, tasks[i].Delay = store.ConflictReplace, time.Hour
	}
	results, err = s.Schedule(ctx, tasks)
	must(t, err)
	for i := range results {
		if o := results[i].Outcome; o != store.Created && o != store.Replaced {
			t.Errorf("%s again: %+v", tasks[i].ID, results[i])
		}
	}
	if _, err := s.Redrive(ctx, store.RedriveRequest{Queue: queue, All: true}); err != nil {
		t.Error(err)
	}
	for _, state := range store.States() {
		if _, err := s.Purge(ctx, queue, state); err != nil {
			t.Error(err)
		}
	}
	if st, err := s.Stats(ctx, queue); err != nil || st != (store.Stats{}) {
		t.Errorf("left: %+v, %v", st, err)
	}
	checkWhole(t, s)
}

func keyNumber(t *testing.T, name string) int {
	t.Helper()
	for i, n := range []string{"meta", "tasks", "due", "leases", "ends", "dead", "moving", "aside"} {
		if n == name {
			return i
		}
	}
	t.Fatalf("no key %s", name)
	return 0
}
