package store

import "time"

// Place is where a task stands in a store that can hand out tasks by it, so that
// another store, which is faster to ask, may keep the order of what comes next. It
// says nothing that has to be believed: who claims by a place that is out of date
// gets nothing.
type Place struct {
	Key
	Seq uint64 // names the task for as long as nobody replaces it; in the order of scheduling

	// At is when the task becomes claimable: its due time, or the end of its lease.
	At time.Time
	// State is StateScheduled (ready ones too), StateLeased or StateDead; 0 where
	// there is no such task.
	State State
}

// PlacesClaimed is what a claim of tasks by their places got.
type PlacesClaimed struct {
	Tasks []Lease
	Left  []Place // of those asked for that were not handed out, where they stand now
	Now   time.Time

	// HeldBack: the queue is paused or has a release setting, so that a due time
	// alone does not say when a task may be handed out.
	HeldBack bool
}

// Window is what is said of the near future of a queue, where it is kept: the
// zero Window is that of a queue of which nothing is kept.
type Window struct {
	Generation int64 // which filling this is; a later one has a higher number
	Version    int64 // how often something was put in since

	Edge   time.Time // what is due until then belongs in
	Loaded time.Time // what is due until then is in
}

// Before says that w is what o was at some time before: who has seen o and then
// sees w is shown old data.
func (w Window) Before(o Window) bool {
	if w.Generation != o.Generation {
		return w.Generation < o.Generation
	}
	return w.Version < o.Version
}

// WindowTaken is what is claimable by now according to a window.
type WindowTaken struct {
	Window
	Whole bool      // the window reaches far enough to tell; otherwise nothing was taken
	Seqs  []uint64  // in the order of their times, then of Seq
	Ended bool      // they are leases that have ended
	Next  time.Time // when the next one is claimable; zero where the window is empty
}
