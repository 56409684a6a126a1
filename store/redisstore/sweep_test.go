package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

// What a restore or a hand leaves behind is put right or set aside, and nothing
// else is touched.
func TestSweep(t *testing.T) {
	s := open(t, Options{Addrs: []string{sharedServer(t).Addr}})
	ctx := context.Background()
	k := func() *shard {
		k, err := s.know(ctx, "q")
		if err != nil || k == nil {
			t.Fatal(k, err)
		}
		return k.shards[0]
	}
	b := s.client.B
	do := func(c rueidis.Completed) {
		t.Helper()
		n, err := s.client.Do(ctx, c).AsInt64()
		if err != nil || n != 1 {
			t.Fatalf("by hand: %d, %v", n, err)
		}
	}
	get := func(id string) store.Result {
		t.Helper()
		r, err := s.Get(ctx, []store.Key{{Queue: "q", ID: id}})
		if err != nil {
			t.Fatal(err)
		}
		return r[0]
	}
	member := func(id string) string {
		t.Helper()
		rec, err := s.client.Do(ctx, b().Hget().Key(k().keys[1]).Field(id).Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		return rec[1:8] + id
	}
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	for _, id := range []string{"whole", "no index", "no record", "broken"} {
		if _, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: id, Due: due, Payload: []byte(id)}}); err != nil {
			t.Fatal(err)
		}
	}
	lease := func(id string) store.Lease {
		t.Helper()
		if _, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: id}}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 1, Lease: 300 * time.Millisecond}})
		if err != nil || len(r[0].Tasks) != 1 || r[0].Tasks[0].ID != id {
			t.Fatal(r, err)
		}
		return r[0].Tasks[0]
	}
	lease("no end")
	do(b().Zrem().Key(k().keys[4]).Member(member("no end")).Build())
	lease("no lease")
	do(b().Hdel().Key(k().keys[3]).Field("no lease").Build())
	lease("leased, no record")
	do(b().Hdel().Key(k().keys[1]).Field("leased, no record").Build())
	do(b().Zrem().Key(k().keys[2]).Member(member("no index")).Build())
	do(b().Hdel().Key(k().keys[1]).Field("no record").Build())
	if err := s.client.Do(ctx, b().Hset().Key(k().keys[1]).FieldValue().FieldValue("broken", "rubbish").Build()).Error(); err != nil {
		t.Fatal(err)
	}

	found, err := s.Sweep(ctx, "q")
	if err != nil {
		t.Fatal(err)
	}
	if found != (Swept{Mended: 3, Orphans: 3, Aside: 1}) {
		t.Errorf("found %+v", found)
	}
	checkWhole(t, s)
	for id, want := range map[string]store.State{"whole": store.StateScheduled, "no index": store.StateScheduled, "no end": store.StateLeased, "no lease": store.StateReady} {
		r := get(id)
		if r.Outcome != store.Found || r.Task.State != want || want == store.StateScheduled && !r.Task.Due.Equal(due) {
			t.Errorf("%s: %v %+v, want %v", id, r.Outcome, r.Task, want)
		}
	}
	for _, id := range []string{"no record", "leased, no record", "broken"} {
		if r := get(id); r.Outcome != store.NotFound {
			t.Errorf("%s: %v", id, r.Outcome)
		}
	}
	text, err := s.client.Do(ctx, b().Hget().Key(k().keys[7]).Field("broken").Build()).ToString()
	if err != nil || text != "the record can not be read\nrubbish" {
		t.Errorf("set aside: %q, %v", text, err)
	}
	// The lease without an end runs out after all.
	time.Sleep(350 * time.Millisecond)
	r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 10}})
	if err != nil || len(r[0].Tasks) != 2 {
		t.Fatalf("claimed %+v, %v", r[0].Tasks, err)
	}
	if found, err := s.Sweep(ctx, "q"); err != nil || found != (Swept{}) {
		t.Errorf("a second sweep found %+v, %v", found, err)
	}
}
