package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	dialTimeout     = 3 * time.Second
	answerTimeout   = 5 * time.Second
	refreshTopology = 2 * time.Second
)

// serverInfo is what a server says of itself when the store is opened; of a
// cluster, the weakest that its masters say.
type serverInfo struct {
	name    string // Redis or Valkey
	version [2]int
	policy  string // maxmemory-policy
	memory  int64  // maxmemory; 0: no limit

	aof      bool
	fsync    string // appendfsync; empty where it is not told
	rdb      bool
	knowRDB  bool
	replicas int
}

// inspect reads what servers say of themselves and refuses those that are not
// to be trusted with tasks.
func (s *Store) inspect(ctx context.Context) error {
	first := true
	var silent error // of a cluster's nodes that do not answer
	for addr, node := range s.masters() {
		info, err := s.ask(ctx, node)
		if err != nil {
			err = s.advise(addr, s.broken(ctx, err))
			if !s.opts.Cluster || ctx.Err() != nil {
				return err
			}
			// It may be a replica; and if it is a master, the others serve their
			// shards all the same.
			silent = err
			s.opts.warnf("%v; it was not looked at", err)
			continue
		}
		if info["role"] == "slave" {
			if s.opts.Cluster {
				continue // a replica that the client knows
			}
			return fmt.Errorf("redis at %s is a replica of %s:%s: name the master, or write redis+sentinel://SENTINEL/MASTER", addr, info["master_host"], info["master_port"])
		}
		if info["redis_mode"] == "cluster" && !s.opts.Cluster {
			return fmt.Errorf("redis at %s is a node of a cluster: write redis+cluster://", addr)
		}
		if info["redis_mode"] == "standalone" && s.opts.Cluster {
			// Some that are hosted say so behind a cluster's protocol.
			s.opts.warnf("redis at %s says that it is no node of a cluster: for a server alone write redis://, or new queues get the 16 shards of a cluster", addr)
		}
		if info["redis_mode"] == "sentinel" {
			return fmt.Errorf("redis at %s is a sentinel: write redis+sentinel://HOST/MASTER", addr)
		}
		this := readInfo(info)
		if this.version[0] < 6 || this.version[0] == 6 && this.version[1] < 2 {
			return fmt.Errorf("redis at %s is of version %d.%d: 6.2 or later is needed", addr, this.version[0], this.version[1])
		}
		s.askDurability(ctx, node, &this)
		if err := s.checkEviction(addr, &this); err != nil {
			return err
		}
		if first {
			s.server, first = this, false
		} else {
			s.server.weaken(&this)
		}
	}
	switch {
	case first && silent != nil:
		return silent
	case first:
		return fmt.Errorf("redis at %s: no master answers; does redis-cli cluster info there say cluster_state:ok?", strings.Join(s.opts.Addrs, ", "))
	case s.server.replicas < s.opts.WaitReplicas:
		s.opts.warnf("a master has %d replicas now, and wait_replicas asks for %d: until they are there every Schedule ends with an error", s.server.replicas, s.opts.WaitReplicas)
	}
	switch s.opts.Wake {
	case WakePubSub:
		s.how = "p"
		if s.opts.Cluster && s.server.version[0] >= 7 {
			s.how = "s"
		}
	case WakeKeyspace:
		s.how = "k"
		return s.enableEvents(ctx)
	default:
		s.how = "n"
	}
	return nil
}

// masters are clients to single nodes, replicas among them where the client does
// not tell them apart.
func (s *Store) masters() map[string]rueidis.Client {
	if s.opts.Cluster {
		return s.client.Nodes()
	}
	return map[string]rueidis.Client{strings.Join(s.opts.Addrs, ","): s.client}
}

func (s *Store) ask(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	text, err := node.Do(ctx, node.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	info := make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

func readInfo(info map[string]string) serverInfo {
	i := serverInfo{name: "Redis", policy: info["maxmemory_policy"]}
	version := info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		i.name = "Valkey" // which says 7.2 for redis_version
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	i.version[0], _ = strconv.Atoi(major)
	i.version[1], _ = strconv.Atoi(minor)
	i.memory, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	i.aof = info["aof_enabled"] == "1"
	i.replicas, _ = strconv.Atoi(info["connected_slaves"])
	return i
}

// askDurability asks for settings, which hosted servers may keep to themselves.
func (s *Store) askDurability(ctx context.Context, node rueidis.Client, i *serverInfo) {
	config := func(name string) (string, bool) {
		m, err := node.Do(ctx, node.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		return m[name], err == nil && len(m) > 0
	}
	if v, ok := config("appendfsync"); ok {
		i.fsync = v
	}
	if v, ok := config("save"); ok {
		i.rdb, i.knowRDB = v != "", true
	}
	if v, ok := config("maxmemory-policy"); ok {
		i.policy = v
	}
}

// checkEviction refuses a server that throws away what it was told to keep. A
// policy counts even where no limit is set now: it may be set while running.
// The volatile policies only touch keys that expire, and no task is in such.
func (s *Store) checkEviction(addr string, i *serverInfo) error {
	if !strings.HasPrefix(i.policy, "allkeys-") {
		return nil
	}
	problem := fmt.Sprintf("redis at %s has maxmemory-policy %s: when its memory is full it throws tasks away without a word", addr, i.policy)
	if s.opts.AllowEviction {
		s.opts.Warn(problem)
		return nil
	}
	return fmt.Errorf("%s; set it to noeviction, or open the store with allow_eviction=true", problem)
}

// weaken makes i say what holds for both.
func (i *serverInfo) weaken(o *serverInfo) {
	if o.version[0] < i.version[0] || o.version[0] == i.version[0] && o.version[1] < i.version[1] {
		i.version = o.version
	}
	if i.aof && !o.aof || i.aof && i.fsync == "always" && o.fsync != "always" {
		i.aof, i.fsync = o.aof, o.fsync
	}
	i.rdb = i.rdb && o.rdb
	i.knowRDB = i.knowRDB && o.knowRDB
	i.replicas = min(i.replicas, o.replicas)
}

// durability says in plain words what has been kept when Schedule returns.
func (i *serverInfo) durability(o *Options) string {
	var text string
	switch {
	case i.aof && i.fsync == "always":
		text = "synced to the disk of the Redis server (appendfsync always)"
	case i.aof && i.fsync == "everysec":
		text = "in the Redis server's append-only file, synced each second: a power cut loses up to two seconds; kill -9 of the server nothing, or as much where its disk is slow just then"
	case i.aof && i.fsync == "no":
		text = "in the Redis server's append-only file, synced when the system likes: a power cut loses up to half a minute, kill -9 of the server nothing"
	case i.aof:
		text = "in the Redis server's append-only file, synced as its appendfsync says, which it does not tell"
	case i.rdb:
		text = "in the Redis server's memory, with a snapshot now and then: a crash of the server loses all since the last; set appendonly yes"
	case i.knowRDB:
		text = "in the Redis server's memory alone: a restart of the server loses everything; set appendonly yes"
	default:
		text = "in the Redis server's memory; it has no append-only file, and does not tell whether it makes snapshots"
	}
	switch {
	case o.WaitReplicas > 0:
		text += fmt.Sprintf("; and in the memory of %d replicas", o.WaitReplicas)
	case o.Cluster || o.Sentinel != "":
		text += "; a failover loses what the replica did not have yet, some milliseconds as a rule (wait_replicas=1 waits for it)"
	}
	if o.AllowEviction {
		text += "; and tasks may be evicted when the memory is full"
	}
	return text
}

// eventFlags are what keyspace wake-ups need of notify-keyspace-events: K, events
// by key; x, expiry; $, a string that is set.
const eventFlags = "Kx$"

// enableEvents makes servers tell of keys, and says what to set where it may not.
func (s *Store) enableEvents(ctx context.Context) error {
	for addr, node := range s.masters() {
		m, err := node.Do(ctx, node.B().ConfigGet().Parameter("notify-keyspace-events").Build()).AsStrMap()
		if err != nil {
			s.opts.warnf("redis at %s does not tell its notify-keyspace-events (%v): wake=keyspace needs K, x and $ in it; without them tasks that other processes schedule may be a second late", addr, err)
			continue
		}
		have := m["notify-keyspace-events"]
		want := have
		for _, f := range eventFlags {
			if !strings.ContainsRune(have, f) && !(f != 'K' && strings.Contains(have, "A")) {
				want += string(f)
			}
		}
		if want == have {
			continue
		}
		if err := node.Do(ctx, node.B().ConfigSet().ParameterValue().ParameterValue("notify-keyspace-events", want).Build()).Error(); err != nil {
			s.opts.warnf("redis at %s does not let notify-keyspace-events be set (%v): set it to %q, or use wake=pubsub; until then tasks that other processes schedule may be a second late", addr, err, want)
		}
	}
	return nil
}
