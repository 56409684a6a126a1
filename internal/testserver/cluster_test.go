package testserver_test

import (
	"strings"
	"testing"

	"github.com/duetime/duetime/internal/testserver"
)

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := testserver.RedisCluster(t, &testserver.RedisClusterOptions{Replicas: 1})
	slot, err := c.Slot("a{tag}")
	if err != nil {
		t.Fatal(err)
	}
	owner, err := c.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	do(t, owner, "SET", "a{tag}", "1")
	do(t, owner, "SET", "b{tag}", "2")

	other := c.Nodes[0]
	if other == owner {
		other = c.Nodes[1]
	}
	move, err := c.BeginMigration(slot, other)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := move.MoveKeys(1); n != 1 || err != nil {
		t.Fatalf("moved %d keys, %v", n, err)
	}
	asked := 0
	for _, key := range []string{"a{tag}", "b{tag}"} {
		if _, err := owner.Do("GET", key); err != nil {
			if !strings.HasPrefix(err.Error(), "ASK ") {
				t.Errorf("a key of a slot that moves: %v", err)
			}
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("%d keys are asked for elsewhere, want the one that moved", asked)
	}
	if err := move.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Do("GET", "a{tag}"); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
		t.Errorf("the old owner answers %v, want MOVED", err)
	}
	if got := do(t, other, "MGET", "a{tag}", "b{tag}").([]any); got[0] != "1" || got[1] != "2" {
		t.Errorf("the keys arrived as %v", got)
	}

	replica, err := c.Replica(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Failover(replica); err != nil {
		t.Fatal(err)
	}
	if now, err := c.Owner(slot); now != replica || err != nil {
		t.Errorf("after a failover the slot is elsewhere, %v", err)
	}
	// The old master is the replica now, and takes over when the new one dies.
	if err := other.AwaitReplication(); err != nil {
		t.Fatal(err)
	}
	replica.Kill()
	if err := c.AwaitPromoted(other); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitOK(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitOK(); err != nil {
		t.Fatal(err)
	}
	if got := do(t, other, "GET", "b{tag}"); got != "2" {
		t.Errorf("after two failovers b = %v", got)
	}
}
