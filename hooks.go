package duetime

import "time"

// Hooks are told what happens, for metrics and traces. Each may be nil, which
// costs nothing. They are called from many goroutines at once, on the way of the
// tasks: they must be quick and must not block, or everything behind them waits.
// The tasks they get are for reading.
type Hooks struct {
	// Scheduled: a Schedule of this client came back from the store. It is not
	// called where the outcome is unknown.
	Scheduled func(queue string, s *Scheduled)

	// HandedOut: a worker of this client got a task, so long after its due time
	// by the store's clock.
	HandedOut func(t *Task, lateness time.Duration)

	// Settled: a handler has returned after so long, and the store knows what
	// became of the task. OutcomeStale: the lease was lost in between, so that
	// nothing changed. err is what the handler returned.
	Settled func(t *Task, outcome Outcome, took time.Duration, err error)

	// LeaseLost: a task was taken from its handler while it was running, or what
	// the handler said could not be stored before the lease ended. Another worker
	// gets the task, so that it may run twice.
	LeaseLost func(t *Task)
}
