// Package release reads a queue's release setting and says when it lets due
// tasks out.
//
//	s, err := release.Parse("CRON_TZ=Asia/Shanghai 0 7 * * *")
//	claimable := !task.Due.After(s.Last(now))
//
// There are three forms:
//
//   - "immediate": the moment a task is due.
//   - "every 5s": at multiples of the duration since 1970-01-01T00:00:00Z.
//   - a cron expression of five fields (minute, hour, day of month, month, day
//     of week) or six (seconds first), or a name such as @daily, with
//     "CRON_TZ=Area/City " before it for a time zone other than UTC.
//
// A Schedule does not change once made and is safe for use by any number of
// goroutines.
package release

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	field   = "settings.release"
	maxText = 256

	minEvery = time.Millisecond
	maxEvery = 366 * 24 * time.Hour
)

// Schedule is a release setting that has been understood.
type Schedule struct {
	every time.Duration // 0: immediate, or cron
	cron  *zoned        // nil: immediate, or every

	// The two instants around the present, so that a claim costs no calendar
	// arithmetic.
	around atomic.Pointer[span]
}

// span is a stretch of time in which nothing is let out: [last, next).
type span struct{ last, next time.Time }

// immediate serves the setting that nearly every queue has.
var immediate = &Schedule{}

// parsed keeps what Parse made of texts, as stores parse at every claim. It is
// emptied when full, so that hostile settings can not fill the memory.
var parsed = struct {
	sync.Mutex
	m map[string]*Schedule
}{m: map[string]*Schedule{}}

const maxParsed = 1000

// Parse reads a release setting. Parsing a text again is cheap. The error is a
// *store.InputError: the text is not understood, or there is no instant at all
// that it names, such as the 30th of February.
func Parse(text string) (*Schedule, error) {
	if text == store.ReleaseImmediate {
		return immediate, nil
	}
	parsed.Lock()
	s := parsed.m[text]
	parsed.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := parse(text)
	if err != nil {
		return nil, err
	}
	parsed.Lock()
	defer parsed.Unlock()
	if len(parsed.m) >= maxParsed {
		clear(parsed.m)
	}
	parsed.m[strings.Clone(text)] = s
	return s, nil
}

func parse(text string) (*Schedule, error) {
	if len(text) > maxText {
		return nil, refuse(text, "is %d bytes long, the limit is %d", len(text), maxText)
	}
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c > 0x7e {
			return nil, refuse(text, "has a character at byte %d that is not printable ASCII", i+1)
		}
	}
	trimmed := strings.TrimSpace(text)
	word, rest, _ := strings.Cut(trimmed, " ")
	switch word {
	case "":
		return nil, refuse(text, `must be "immediate", "every" and a duration, or a cron expression`)
	case store.ReleaseImmediate:
		if rest != "" {
			return nil, refuse(text, `has text after "immediate"`)
		}
		return immediate, nil
	case "every", "@every":
		return parseEvery(text, strings.TrimSpace(rest))
	}
	c, err := parseCron(text, trimmed)
	if err != nil {
		return nil, err
	}
	return &Schedule{cron: c}, nil
}

func parseEvery(text, rest string) (*Schedule, error) {
	d, err := time.ParseDuration(rest)
	if err != nil {
		return nil, refuse(text, `must have a duration with a unit after "every", such as "every 5s"`)
	}
	if d < minEvery || d > maxEvery {
		return nil, refuse(text, "must be every %v to every %v", minEvery, maxEvery)
	}
	if d%time.Millisecond != 0 {
		return nil, refuse(text, "must be a whole number of milliseconds")
	}
	return &Schedule{every: d}, nil
}

func refuse(text, problem string, args ...any) error {
	return store.NewInputError(field, text, problem, args...)
}

// Last is the latest release instant that is not after now. Tasks with a due
// time not after it may be handed out. It is now itself for "immediate", and the
// zero time where there was none yet.
func (s *Schedule) Last(now time.Time) time.Time {
	switch {
	case s.every != 0:
		return time.UnixMilli(floor(now.UnixMilli(), s.every.Milliseconds())).UTC()
	case s.cron == nil:
		return now
	}
	if a := s.around.Load(); a != nil && !now.Before(a.last) && now.Before(a.next) {
		return a.last
	}
	last := s.cron.last(now)
	if !last.IsZero() {
		if next := s.cron.next(now.Truncate(time.Second).Add(time.Second)); !next.IsZero() {
			s.around.Store(&span{last, next})
		}
	}
	return last
}

// Next is the earliest release instant that is not before t: when a task that
// is due at t is let out. It is t itself for "immediate", and the zero time
// where there is none (after the year 9999).
func (s *Schedule) Next(t time.Time) time.Time {
	switch {
	case s.every != 0:
		ms := t.UnixMilli()
		if t.Nanosecond()%int(time.Millisecond) != 0 {
			ms++
		}
		every := s.every.Milliseconds()
		if down := floor(ms, every); down != ms {
			ms = down + every
		}
		return time.UnixMilli(ms).UTC()
	case s.cron == nil:
		return t
	}
	if a := s.around.Load(); a != nil && t.After(a.last) && !t.After(a.next) {
		return a.next
	}
	return s.cron.next(t)
}

// floor is the largest multiple of step that is not above n, below zero too.
func floor(n, step int64) int64 {
	if r := n % step; r < 0 {
		return n - r - step
	} else {
		return n - r
	}
}
