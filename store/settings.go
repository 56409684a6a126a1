package store

import (
	"math"
	"time"
)

// Settings is a queue's versioned document. All of it is stored; to change one
// field, read it, change it, and put it back with the version it had.
type Settings struct {
	Version     int64         // 0: never changed
	Paused      bool          // Claim returns nothing
	MaxAttempts int           // failures, then dead
	MaxLost     int           // leases run out, then dead
	Backoff     Backoff       // the delay before another attempt
	Lease       time.Duration // of claims that do not say
	Release     string        // when due tasks are let out: "immediate", "every 5s", or a cron expression; see package release
}

// Backoff grows exponentially from Initial to Max: the delay before attempt
// n+1, when attempt n has failed, is min(Initial × Factor^(n-1), Max), less a
// random part of up to Jitter of it (1: anything from 1 ms to the whole, "full
// jitter"), so that tasks that failed together do not come back together.
type Backoff struct {
	Initial time.Duration
	Max     time.Duration
	Factor  float64
	Jitter  float64
}

// ReleaseImmediate lets tasks out the moment they are due.
const ReleaseImmediate = "immediate"

// DefaultSettings are the settings of a queue that nobody has changed.
func DefaultSettings() Settings {
	return Settings{
		MaxAttempts: 25,
		MaxLost:     10,
		Backoff:     Backoff{Initial: time.Second, Max: time.Hour, Factor: 2, Jitter: 1},
		Lease:       30 * time.Second,
		Release:     ReleaseImmediate,
	}
}

// Check says what is wrong with settings, apart from Release, whose syntax
// package release knows; the error is an *InputError.
func (s *Settings) Check() error {
	if s.Version < 0 {
		return inputError("settings.version", s.Version, "must be 0 or more")
	}
	if s.MaxAttempts < 1 || s.MaxAttempts > MaxAttemptLimit {
		return inputError("settings.max_attempts", s.MaxAttempts, "must be 1 to %d", MaxAttemptLimit)
	}
	if s.MaxLost < 1 || s.MaxLost > MaxAttemptLimit {
		return inputError("settings.max_lost", s.MaxLost, "must be 1 to %d", MaxAttemptLimit)
	}
	if err := checkLease("settings.lease", s.Lease, false); err != nil {
		return err
	}
	const year = 365 * 24 * time.Hour
	b := s.Backoff
	if b.Initial < time.Millisecond || b.Initial > year {
		return inputError("settings.backoff.initial", b.Initial, "must be 1ms to %v", year)
	}
	if b.Max < b.Initial || b.Max > year {
		return inputError("settings.backoff.max", b.Max, "must be %v (backoff.initial) to %v", b.Initial, year)
	}
	if math.IsNaN(b.Factor) || b.Factor < 1 || b.Factor > 100 {
		return inputError("settings.backoff.factor", b.Factor, "must be 1 to 100")
	}
	if math.IsNaN(b.Jitter) || b.Jitter < 0 || b.Jitter > 1 {
		return inputError("settings.backoff.jitter", b.Jitter, "must be 0 to 1")
	}
	return nil
}
