package testserver_test

import (
	"testing"

	"github.com/duetime/duetime/internal/testserver"
)

func TestSentinels(t *testing.T) {
	t.Parallel()
	master := testserver.Redis(t, &testserver.RedisOptions{Password: "secret"})
	replica := testserver.RedisReplica(t, master, nil)
	sentinels := testserver.Sentinels(t, master, nil)
	do(t, master, "SET", "a", "1")

	addr, err := sentinels.Failover()
	if err != nil {
		t.Fatal(err)
	}
	if addr != replica.Addr {
		t.Errorf("the master is %s, want the replica %s", addr, replica.Addr)
	}
	if err := master.AwaitReplication(); err != nil {
		t.Fatal(err)
	}
	replica.Kill()
	if addr, err = sentinels.AwaitMaster(replica.Addr); err != nil {
		t.Fatal(err)
	}
	if addr != master.Addr {
		t.Errorf("after a kill the master is %s, want %s", addr, master.Addr)
	}
	if got := do(t, master, "GET", "a"); got != "1" {
		t.Errorf("a = %v", got)
	}
}
