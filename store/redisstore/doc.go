// Package redisstore keeps tasks in Redis or Valkey: one server, one behind
// sentinels, or a cluster. Any number of processes may use it at the same time;
// none of them is special.
//
//	opts, err := redisstore.ParseURL("redis://127.0.0.1:6379")
//	…
//	s, err := redisstore.Open(ctx, opts)
//	client := duetime.NewClient(s, nil)
//
// # What lies in Redis
//
// A queue has one or more shards, whose number it keeps (see [Store.Reshard]). A
// shard is nine keys with one hash tag, so that all of them are on one node:
// records in a hash; sorted sets for what is due, for leases by their end, and for
// the dead; a hash of leases; a few numbers. lua/prelude.lua has the layout. Ids
// are never part of a key's name, so that any id is legal.
//
// Each operation on a shard is one script, which reads the server's clock itself
// and does all or nothing. Scripts work in slices of some hundred tasks, so that
// none holds the server up for long. Ready is not stored: a task is ready when its
// score has passed. The state of a task is which set it is in, and there is no
// moment at which it is in none.
//
// What does not belong to one shard lies beside them: the set of queues, and for
// each queue a hash with its layout, its settings, and, where it has several
// shards, one sequence for all of them and a bell (see heads in spread.go).
//
// # Being on time
//
// A claim says when the next task is due, and whoever waits sleeps until then. A
// script that makes something due earlier than anything was says so, by a message
// or by a key that Redis tells of; see [Wake].
//
// # Limits
//
// Redis 6.2 or later. A due time is a score, and exact: milliseconds until the
// year 9999 are less than 2^48. What an acknowledged Schedule is worth is up to
// the server's settings: [Store.Capabilities] says it in words. An error that wraps
// store.ErrFull says that the server had no room and that nothing was stored. At
// maxmemory acks and cancels, which free memory, go on; after a snapshot that
// failed (MISCONF) Redis refuses all that writes until one succeeds.
//
// Replicas are behind by some milliseconds. WaitReplicas keeps tasks and cancels
// safe in a failover; claims are not waited for, so that some tasks run again.
// Redis's min-replicas-to-write 1 stops a master that has been replaced and has
// not noticed: else, for a second or so, two masters hand out the same tasks.
package redisstore
