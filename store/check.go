package store

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits. All stores have the same ones, so that a program can move from one to
// another.
const (
	MaxQueueBytes   = 100
	MaxIDBytes      = 255
	MaxPayloadBytes = 1 << 20  // the default of Capabilities.MaxPayload
	MaxHeaderBytes  = 16 << 10 // names and values together
	MaxErrorBytes   = 8 << 10  // error text is cut to it
	MaxWorkerBytes  = 255      // worker names are cut to it
	MaxBatch        = 10_000   // items in a call, and tasks in a claim
	MaxList         = 1_000    // tasks in a page
	MaxClaimBytes   = 32 << 20 // payloads in the answer to one claim; always at least one task
	MaxAttemptLimit = 1_000_000

	MinLease = time.Millisecond
	MaxLease = 24 * time.Hour

	MaxAhead = time.Second // of ClaimRequest
)

// The earliest and the latest due time.
var (
	MinTime = time.UnixMilli(0).UTC()
	MaxTime = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
)

// CheckQueue says what is wrong with a queue's name; the error is an
// *InputError.
func CheckQueue(name string) error {
	if name == "" || len(name) > MaxQueueBytes {
		return inputError("queue", name, "is %d bytes long, must be 1 to %d", len(name), MaxQueueBytes)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if i == 0 && !alnum {
			return inputError("queue", name, "must begin with a letter or digit (A-Z a-z 0-9)")
		}
		if !alnum && c != '.' && c != '_' && c != ':' && c != '-' {
			return inputError("queue", name, "has %q at byte %d, may only have A-Z a-z 0-9 . _ : -", rune(c), i+1)
		}
	}
	return nil
}

// CheckID says what is wrong with a task's id; the error is an *InputError.
func CheckID(id string) error {
	if id == "" || len(id) > MaxIDBytes {
		return inputError("id", id, "is %d bytes long, must be 1 to %d", len(id), MaxIDBytes)
	}
	ascii := true
	for i := 0; i < len(id); i++ {
		if c := id[i]; c < 0x20 || c == 0x7f {
			return inputError("id", id, "has a control character at byte %d, must have none", i+1)
		} else if c >= 0x80 {
			ascii = false
		}
	}
	if ascii {
		return nil
	}
	if !utf8.ValidString(id) {
		return inputError("id", id, "must be valid UTF-8")
	}
	for i, r := range id {
		if unicode.IsControl(r) {
			return inputError("id", id, "has a control character at byte %d, must have none", i+1)
		}
	}
	return nil
}

// CheckKey checks a queue's name and an id.
func CheckKey(queue, id string) error {
	if err := CheckQueue(queue); err != nil {
		return err
	}
	return CheckID(id)
}

// Check says what is wrong with a task, and otherwise when it is due, given the
// store's clock. maxPayload is in bytes.
func (t *NewTask) Check(now time.Time, maxPayload int) (due time.Time, err error) {
	if err := CheckKey(t.Queue, t.ID); err != nil {
		return time.Time{}, err
	}
	if len(t.Payload) > maxPayload {
		return time.Time{}, inputError("payload", t.Payload, "is %d bytes long, the limit is %d", len(t.Payload), maxPayload)
	}
	if err := checkHeaders(t.Headers); err != nil {
		return time.Time{}, err
	}
	if t.MaxAttempts < 0 || t.MaxAttempts > MaxAttemptLimit {
		return time.Time{}, inputError("max_attempts", t.MaxAttempts, "must be 0 (the queue's setting) to %d", MaxAttemptLimit)
	}
	if t.Conflict > ConflictReplace {
		return time.Time{}, inputError("on_conflict", int(t.Conflict), "must be keep or replace")
	}
	return DueTime(now, t.Due, t.Delay)
}

func checkHeaders(headers map[string]string) error {
	total := 0
	for name, value := range headers {
		total += len(name) + len(value)
		if name == "" {
			return inputError("headers", name, "a header's name must not be empty")
		}
		for _, s := range [2]string{name, value} {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
				return inputError("headers", s, "must be valid UTF-8 without control characters")
			}
		}
	}
	if total > MaxHeaderBytes {
		return inputError("headers", len(headers), "are %d bytes together, the limit is %d", total, MaxHeaderBytes)
	}
	return nil
}

// DueTime is when something is due that was asked for at due (zero: not given)
// or after delay, by a clock that shows now: in UTC, rounded up to the
// millisecond, between MinTime and MaxTime. With neither it is due now, rounded
// down, so that it can be handed out at once. The error is an *InputError.
func DueTime(now, due time.Time, delay time.Duration) (time.Time, error) {
	if !due.IsZero() {
		if delay != 0 {
			return time.Time{}, inputError("delay", delay, "can not be given together with due_at (%s)", due.Format(time.RFC3339Nano))
		}
		if due.Before(MinTime) {
			return time.Time{}, inputError("due_at", due.Format(time.RFC3339Nano), "is before %s, the earliest due time", MinTime.Format(time.RFC3339))
		}
		// Before it is rounded: a count of milliseconds would wrap round.
		if due.After(MaxTime) {
			return time.Time{}, inputError("due_at", due.Format(time.RFC3339Nano), "is after %s, the latest due time", MaxTime.Format(time.RFC3339Nano))
		}
		return CeilMilli(due), nil
	}
	if delay < 0 {
		return time.Time{}, inputError("delay", delay, "is negative, must be 0 or more")
	}
	if delay == 0 {
		// Rounded up, what is due now could not be claimed for a moment.
		return now.Truncate(time.Millisecond).UTC(), nil
	}
	due = CeilMilli(now.Add(delay))
	if due.After(MaxTime) {
		return time.Time{}, inputError("delay", delay, "ends after %s, the latest due time", MaxTime.Format(time.RFC3339Nano))
	}
	return due, nil
}

// CeilMilli rounds up to the millisecond, in UTC, without a monotonic reading.
func CeilMilli(t time.Time) time.Time {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return time.UnixMilli(ms).UTC()
}

// Check says what is wrong with a claim, its Err then; the error is an
// *InputError.
func (r *ClaimRequest) Check() error {
	if err := CheckQueue(r.Queue); err != nil {
		return err
	}
	if r.Max < 1 || r.Max > MaxBatch {
		return inputError("max", r.Max, "must be 1 to %d", MaxBatch)
	}
	if r.Ahead < 0 || r.Ahead > MaxAhead {
		return inputError("ahead", r.Ahead, "must be 0s to %v", MaxAhead)
	}
	if r.AtMostOnce {
		if r.Lease != 0 {
			return inputError("lease", r.Lease, "an at-most-once claim has no lease, must be 0")
		}
		return nil
	}
	return checkLease("lease", r.Lease, true)
}

func checkLease(field string, lease time.Duration, zero bool) error {
	if lease == 0 && zero {
		return nil
	}
	if lease < MinLease || lease > MaxLease {
		return inputError(field, lease, "must be %v to %v", MinLease, MaxLease)
	}
	return nil
}

// Check says what is wrong with a settlement, apart from its receipt; the error
// is an *InputError.
func (s *Settlement) Check(now time.Time) error {
	switch s.Action {
	case Ack, Bury, Release:
		return nil
	case Retry:
		if s.Backoff {
			if s.Delay != 0 {
				return inputError("delay", s.Delay, "can not be given together with backoff")
			}
			return nil
		}
		_, err := DueTime(now, time.Time{}, s.Delay)
		return err
	case Snooze:
		_, err := DueTime(now, time.Time{}, s.Delay)
		return err
	case Extend:
		return checkLease("lease", s.Lease, true)
	}
	return inputError("action", int(s.Action), "must be ack, retry, snooze, bury, release or extend")
}

// CheckBatch refuses a batch that is too long; the error is an *InputError.
func CheckBatch(n int) error {
	if n > MaxBatch {
		return inputError("batch", n, "has too many items, the limit is %d", MaxBatch)
	}
	return nil
}

// Check says what is wrong with a list request, and sets the default limit.
func (r *ListRequest) Check() error {
	if err := CheckQueue(r.Queue); err != nil {
		return err
	}
	if r.State < StateScheduled || r.State > StateDead {
		return inputError("state", int(r.State), "must be scheduled, ready, leased or dead")
	}
	if r.Limit == 0 {
		r.Limit = 100
	}
	if r.Limit < 1 || r.Limit > MaxList {
		return inputError("limit", r.Limit, "must be 1 to %d", MaxList)
	}
	return nil
}

// Check says what is wrong with a redrive request.
func (r *RedriveRequest) Check() error {
	if err := CheckQueue(r.Queue); err != nil {
		return err
	}
	if r.All == (len(r.IDs) > 0) {
		return inputError("ids", len(r.IDs), "give either ids or all")
	}
	if err := CheckBatch(len(r.IDs)); err != nil {
		return err
	}
	for _, id := range r.IDs {
		if err := CheckID(id); err != nil {
			return err
		}
	}
	return nil
}

// CleanError makes error text fit to be stored and shown: valid UTF-8 without
// control characters but line ends and tabs, at most MaxErrorBytes long.
func CleanError(text string) string { return clean(text, MaxErrorBytes) }

// CleanWorker does the same for a worker's name.
func CleanWorker(name string) string { return clean(name, MaxWorkerBytes) }

func clean(s string, limit int) string {
	if len(s) > 4*limit { // no need to clean megabytes that are cut anyway
		s = s[:4*limit]
	}
	s = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
