package redisstore

import "sync/atomic"

// counts are what this store has seen since it was opened.
type counts struct {
	mended     atomic.Int64 // what sweeps put right
	aside      atomic.Int64 // index entries without a record, and records that could not be read
	heard      atomic.Int64 // wake-ups of others
	subscribed atomic.Int64 // subscriptions, those after a loss of the connection among them
}
