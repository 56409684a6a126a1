package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// With wait_replicas, what was acknowledged is on the replica; where that is not
// there, calls that promise something fail, and others go on.
func TestWaitReplicas(t *testing.T) {
	master := testserver.Redis(t, nil)
	replica := testserver.RedisReplica(t, master, nil)
	s := open(t, Options{Addrs: []string{master.Addr}, WaitReplicas: 1, WaitTimeout: 300 * time.Millisecond, Shards: 3})
	ctx := context.Background()
	for n := range 50 {
		id := string(rune('A' + n))
		if r, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: id}}); err != nil || r[0].Outcome != store.Created {
			t.Fatal(r, err)
		}
		k, err := s.know(ctx, "q")
		if err != nil {
			t.Fatal(err)
		}
		if there, err := replica.Do("HEXISTS", k.of(id).keys[1], id); err != nil || there != int64(1) {
			t.Fatalf("task %s is not on the replica when Schedule returns: %v, %v", id, there, err)
		}
	}
	if !strings.Contains(s.Capabilities().Durability, "1 replicas") {
		t.Errorf("durability says %q", s.Capabilities().Durability)
	}
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: "late"}})
	if err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("schedule with no replica: %v", err)
	}
	got, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 100}})
	if err != nil || len(got[0].Tasks) != 51 {
		t.Fatalf("claimed %d, %v", len(got[0].Tasks), err)
	}
	replica.Continue()
	if r, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: "late"}}); err != nil || r[0].Outcome != store.Exists {
		t.Fatal(r, err)
	}
}
