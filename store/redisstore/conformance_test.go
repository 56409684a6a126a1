package redisstore

import (
	"testing"

	"github.com/duetime/duetime/store/storetest"
)

func TestConformance(t *testing.T) {
	server := sharedServer(t)
	storetest.Run(t, storetest.Harness{Open: harness(Options{Addrs: []string{server.Addr}})})
}

// A queue on one server may have several shards too.
func TestConformanceSharded(t *testing.T) {
	server := sharedServer(t)
	storetest.RunOnly(t, storetest.Harness{Open: harness(Options{Addrs: []string{server.Addr}, Shards: 5})},
		"claim", "next", "order", "list", "lease", "model")
}

func TestConformanceCluster(t *testing.T) {
	cluster := sharedCluster(t)
	var groups []string // all
	if raceDetector {
		groups = []string{"claim", "lease", "wake", "concurrency", "model", "scenario"}
	}
	storetest.RunOnly(t, storetest.Harness{Open: harness(Options{Addrs: cluster.Addrs(), Cluster: true})}, groups...)
}
