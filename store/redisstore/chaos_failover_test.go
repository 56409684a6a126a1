package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/storetest/history"
)

// Replication is not waited for by claims and settlements, so that a failover may
// forget the last of them: some tasks run again. Tasks and cancels are waited for,
// and none may be lost.
var failover = history.Options{Forgets: true}

// A replica takes over its master's slots: once because an operator says so, which
// loses nothing, once because the master is killed.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, &testserver.RedisClusterOptions{Replicas: 1})
	l := newLoad(t, alike(5, Options{Addrs: cluster.Addrs(), Cluster: true, Shards: 3, WaitReplicas: 1, WaitTimeout: 500 * time.Millisecond}))
	l.start("orders")
	time.Sleep(300 * time.Millisecond)
	k, err := l.plain[0].know(context.Background(), "orders")
	must(t, err)
	slot, err := cluster.Slot(k.shards[0].keys[0])
	must(t, err)
	old, err := cluster.Owner(slot)
	must(t, err)
	replica, err := cluster.Replica(old)
	must(t, err)
	must(t, cluster.Failover(replica))
	time.Sleep(300 * time.Millisecond)
	stop := l.during()
	must(t, old.AwaitReplication())
	replica.Kill()
	must(t, cluster.AwaitPromoted(old))
	must(t, replica.Restart())
	must(t, cluster.AwaitOK())
	must(t, replica.AwaitReplication())
	time.Sleep(300 * time.Millisecond)
	stop()
	l.finish(failover)
	if l.failed.Load() == 0 {
		t.Error("nobody felt anything")
	}
}

// Slots that are in use move to another node and back, key by key, with payloads
// of a megabyte among the others.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, nil)
	l := newLoad(t, alike(4, Options{Addrs: cluster.Addrs(), Cluster: true, Shards: 4}))
	l.large = true
	l.start("orders")
	time.Sleep(500 * time.Millisecond)
	k, err := l.plain[0].know(context.Background(), "orders")
	must(t, err)
	for range 2 {
		for _, key := range []string{k.shards[0].keys[0], k.shards[2].keys[0], l.plain[0].queueKey("orders"), l.plain[0].registryKey()} {
			slot, err := cluster.Slot(key)
			must(t, err)
			from, err := cluster.Owner(slot)
			must(t, err)
			to := cluster.Nodes[0]
			if to == from {
				to = cluster.Nodes[1]
			}
			m, err := cluster.BeginMigration(slot, to)
			must(t, err)
			for {
				n, err := m.MoveKeys(1)
				must(t, err)
				time.Sleep(20 * time.Millisecond)
				if n == 0 {
					break
				}
			}
			must(t, m.Finish())
		}
	}
	l.finish(history.Options{})
	met := 0
	for _, node := range cluster.Nodes {
		stats, err := node.Info("errorstats")
		must(t, err)
		for _, name := range []string{"errorstat_ASK", "errorstat_TRYAGAIN"} {
			var n int
			_, _ = fmt.Sscanf(stats[name], "count=%d", &n)
			met += n
		}
	}
	if met == 0 {
		t.Error("no call met a slot on its way: the test shows nothing")
	}
	t.Logf("%d calls met a slot on its way", met)
}
