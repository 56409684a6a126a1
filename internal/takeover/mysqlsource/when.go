package mysqlsource

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// ParseZone reads a time zone: UTC, one of the IANA data base such as Asia/Shanghai,
// or an offset such as +08:00. Local, which is another on each machine, is refused.
func ParseZone(text string) (*time.Location, error) {
	if text != "" && strings.ContainsAny(text[:1], "+-") {
		at, err := time.Parse("-07:00", text)
		if err == nil {
			_, offset := at.Zone()
			return time.FixedZone(text, offset), nil
		}
	} else if text != "" && text != "Local" {
		if zone, err := time.LoadLocation(text); err == nil {
			return zone, nil
		}
	}
	return nil, store.NewInputError("--zone", text, "must be UTC, a time zone such as Asia/Shanghai, or an offset such as +08:00")
}

// dueSQL is the due column as it is asked for: a TIMESTAMP as what it is, seconds
// since 1970, so that the session's zone does not matter.
func (s *Source) dueSQL() string {
	if s.table.due.kind == "timestamp" {
		return "UNIX_TIMESTAMP(" + s.table.due.name + ")"
	}
	return s.table.due.name
}

// times are when a row is due and, where the column tells that, was made.
func (s *Source) times(text string) (due, created time.Time, err error) {
	o := &s.opts
	var at time.Time
	switch s.table.due.kind {
	case "timestamp":
		at, err = instant(o.DueColumn, text)
	case "datetime", "date":
		at, err = wall(text, o.Zone)
		if err != nil {
			err = fmt.Errorf("its %s %s", o.DueColumn, err)
		}
	default:
		at, err = o.Unit.Instant(o.DueColumn, text)
	}
	if err != nil {
		return at, created, err
	}
	if o.Created {
		created = at
	}
	due, err = store.DueTime(at, time.Time{}, o.Delay)
	if err != nil {
		return due, created, fmt.Errorf("its %s %s and the delay end after the year 9999", o.DueColumn, text)
	}
	return due, created, nil
}

// instant is what a TIMESTAMP tells; 0 is what the server gives for 0000-00-00.
func instant(name, text string) (time.Time, error) {
	seconds, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n == 0 {
		return time.Time{}, fmt.Errorf("its %s is no time", name)
	}
	micros, err := strconv.ParseInt((fraction + "000000")[:6], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("its %s is no time", name)
	}
	return roundUp(time.Unix(n, micros*1000)), nil
}

// roundUp, as a task is never early.
func roundUp(t time.Time) time.Time {
	return t.UTC().Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// wall is the instant at which clocks in a zone show what a DATETIME says. Where they
// show it twice, it is the second time, as a task is never early; where clocks are put
// forward over it, it is as long after that as it would have been.
func wall(text string, zone *time.Location) (time.Time, error) {
	layout := "2006-01-02"
	if len(text) > len(layout) {
		layout = "2006-01-02 15:04:05.999999"
	}
	naive, err := time.Parse(layout, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("is %q, which is no time", text)
	}
	const day = 24 * time.Hour
	_, before := naive.Add(-day).In(zone).Zone()
	_, after := naive.Add(day).In(zone).Zone()
	var found time.Time
	for _, offset := range []int{before, after} {
		at := naive.Add(-time.Duration(offset) * time.Second)
		if _, is := at.In(zone).Zone(); is == offset && at.After(found) {
			found = at
		}
	}
	if found.IsZero() {
		found = naive.Add(-time.Duration(before) * time.Second)
	}
	if found.Year() < 1970 {
		return time.Time{}, fmt.Errorf("is %s, before 1970", text)
	}
	return roundUp(found), nil
}
