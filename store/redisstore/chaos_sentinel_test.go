package redisstore

import (
	"net"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// Sentinels make the replica the master: once because an operator says so, once
// because the master is killed.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	// A master without a replica takes no writes, or the old one would go on for a
	// second beside the new one, and let workers act on leases that are another's.
	opts := &testserver.RedisOptions{AOF: true, Config: []string{"--min-replicas-to-write", "1"}}
	master := testserver.Redis(t, opts)
	replica := testserver.RedisReplica(t, master, opts)
	sentinels := testserver.Sentinels(t, master, nil)
	l := newLoad(t, alike(5, Options{
		Addrs: sentinels.Addrs(), Sentinel: sentinels.Name, WaitReplicas: 1, WaitTimeout: 500 * time.Millisecond,
	}))
	l.start("orders")
	time.Sleep(500 * time.Millisecond)
	stop := l.during()
	addr, err := sentinels.Failover()
	must(t, err)
	if addr != replica.Addr {
		t.Fatalf("the master is %s now, want the replica %s", addr, replica.Addr)
	}
	follow(t, master, replica)
	time.Sleep(300 * time.Millisecond)
	stop()
	time.Sleep(300 * time.Millisecond)
	stop = l.during()
	replica.Kill()
	if addr, err = sentinels.AwaitMaster(replica.Addr); err != nil || addr != master.Addr {
		t.Fatalf("the master is %s now (%v), want %s", addr, err, master.Addr)
	}
	must(t, replica.Restart())
	follow(t, replica, master)
	time.Sleep(300 * time.Millisecond)
	stop()
	l.finish(failover)
	if l.failed.Load() == 0 {
		t.Error("nobody felt anything")
	}
}

// follow makes an old master a replica of the new one, by hand a second after it
// could be the sentinels: they take ten of them, and now and then forget it.
func follow(t *testing.T, old, master *testserver.RedisServer) {
	t.Helper()
	time.Sleep(time.Second)
	host, port, err := net.SplitHostPort(master.Addr)
	must(t, err)
	do(t, old, "REPLICAOF", host, port)
	must(t, old.AwaitReplication())
}
