package redisstore

import (
	"sync/atomic"

	"github.com/duetime/duetime/store"
)

// counts are what this store has seen since it was opened.
type counts struct {
	mended     atomic.Int64 // what sweeps put right
	aside      atomic.Int64 // index entries without a record, and records that could not be read
	heard      atomic.Int64 // wake-ups of others
	subscribed atomic.Int64 // subscriptions, those after a loss of the connection among them
	again      atomic.Int64 // calls that were repeated because the server was not ready
}

var _ store.Measurer = (*Store)(nil)

// Measures implements store.Measurer.
func (s *Store) Measures() []store.Measure {
	counter := func(name, help string, v *atomic.Int64) store.Measure {
		return store.Measure{Name: name, Help: help, Counter: true, Value: float64(v.Load())}
	}
	return []store.Measure{
		counter("mended_total", "Tasks that a sweep found in no state or in two, and put right.", &s.counts.mended),
		counter("set_aside_total", "Records that could not be read and index entries without a record, taken out of the way.", &s.counts.aside),
		counter("wakeups_heard_total", "Wake-ups from other processes.", &s.counts.heard),
		counter("subscriptions_total", "Subscriptions to wake-ups; more than one a queue means that connections were lost.", &s.counts.subscribed),
		counter("repeated_calls_total", "Calls repeated because the server was loading, failing over or moving a slot.", &s.counts.again),
		{Name: "clock_offset_seconds", Help: "The server's clock less this machine's, as last seen.", Value: float64(s.clock.offset.Load()) / 1e9},
	}
}
