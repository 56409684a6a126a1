package redisstore

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// Wake says how a process learns at once that another one scheduled something
// for earlier. All processes that share a Redis should have the same. Whichever
// it is, those who wait also look again once a second.
type Wake string

const (
	// WakePubSub: scripts publish. On a cluster of Redis 7 or later it is sharded,
	// so that a message stays on its shard's node.
	WakePubSub Wake = "pubsub"
	// WakeKeyspace: scripts set a key that expires when the first task is due,
	// and Redis tells of both. For servers where publishing is not allowed.
	WakeKeyspace Wake = "keyspace"
	// WakePoll: nobody is told. A task that another process schedules for earlier
	// than any other may be up to a second late.
	WakePoll Wake = "poll"
)

// Options of a store. What is not said here is found on the server.
type Options struct {
	// Addrs are host:port: of the server, of some nodes of the cluster, or of the
	// sentinels.
	Addrs []string

	Cluster  bool   // a Redis Cluster
	Sentinel string // the name of the master that the sentinels watch; empty: no sentinels

	Username, Password                 string
	SentinelUsername, SentinelPassword string
	TLS                                *tls.Config // nil: no TLS
	DB                                 int         // number of the database; a cluster has only 0

	// Prefix is what all keys begin with; empty means "duetime". Stores with
	// different prefixes know nothing of each other.
	Prefix string

	// Shards is how many shards a queue gets that this store is the first to use;
	// 0 means 1, and 16 on a cluster. A queue keeps what it has; see Reshard.
	Shards int

	Wake Wake // empty: WakePubSub

	// AllowEviction opens a server whose maxmemory-policy may throw tasks away.
	AllowEviction bool

	// WaitReplicas is how many replicas must have a change before Schedule,
	// Cancel and Reschedule return. Where they do not in WaitTimeout (0: 1 s), the
	// call returns an error, although the master has it.
	WaitReplicas int
	WaitTimeout  time.Duration

	// MaxPayload is how long a task's payload may be, in bytes; 0 means
	// store.MaxPayloadBytes.
	MaxPayload int

	// Sweep is how often the store looks for what should not exist, such as a
	// record that no index names, all of it in small slices; 0 means every
	// ten minutes, negative never.
	Sweep time.Duration

	// Warn is told, in a sentence, what an operator should know and what is no
	// error of a call; nil: nobody is. It is called by several goroutines.
	Warn func(message string)
}

const (
	defaultPrefix        = "duetime"
	defaultClusterShards = 16
	maxShards            = 1024
	defaultSweep         = 10 * time.Minute
)

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,100}$`)

// withDefaults checks options; the error is an *InputError.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Addrs = slices.Clone(c.Addrs) // the client shuffles them
	switch {
	case len(c.Addrs) == 0:
		return c, store.NewInputError("addrs", "", "names no server")
	case c.Cluster && c.Sentinel != "":
		return c, store.NewInputError("sentinel", c.Sentinel, "can not be given for a cluster, which needs no sentinels")
	case c.Cluster && c.DB != 0:
		return c, store.NewInputError("db", c.DB, "must be 0: a cluster has no other")
	case c.DB < 0:
		return c, store.NewInputError("db", c.DB, "must be 0 or more")
	}
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if !prefixForm.MatchString(c.Prefix) {
		return c, store.NewInputError("prefix", c.Prefix, "must be 1 to 100 of A-Z a-z 0-9 . _ : / -")
	}
	if c.Shards == 0 {
		c.Shards = 1
		if c.Cluster {
			c.Shards = defaultClusterShards
		}
	}
	if err := checkShards(c.Shards); err != nil {
		return c, err
	}
	switch c.Wake {
	case "":
		c.Wake = WakePubSub
	case WakePubSub, WakeKeyspace, WakePoll:
	default:
		return c, store.NewInputError("wake", string(c.Wake), "must be %s, %s or %s", WakePubSub, WakeKeyspace, WakePoll)
	}
	if c.WaitReplicas < 0 || c.WaitReplicas > 100 {
		return c, store.NewInputError("wait_replicas", c.WaitReplicas, "must be 0 to 100")
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = time.Second
	}
	if c.WaitTimeout < time.Millisecond {
		return c, store.NewInputError("wait_timeout", c.WaitTimeout, "must be 1ms or more")
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = store.MaxPayloadBytes
	}
	if c.Sweep == 0 {
		c.Sweep = defaultSweep
	}
	if c.Warn == nil {
		c.Warn = func(string) {}
	}
	return c, nil
}

func checkShards(n int) error {
	if n < 1 || n > maxShards {
		return store.NewInputError("shards", n, "must be 1 to %d", maxShards)
	}
	return nil
}

func (o *Options) warnf(format string, args ...any) { o.Warn(fmt.Sprintf(format, args...)) }
