package release

import (
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// A cron expression names readings of a clock on a wall ("30 2 * * *": when it
// shows 02:30). The cron library reads the expression and does the calendar, on
// a clock that is never changed (UTC); this file turns readings into instants
// and back. No library that was tried gets this right: at the start of summer
// time they leave a day out, or run the day's job an hour late rather than at
// the first moment there is; at its end they run the day's job twice; half-hour
// shifts, shifts at midnight and 29 February across 2100 fail too.
//
// The rules, where a zone's clock is moved:
//
//   - Forward, over a reading that the expression names: the instant is the
//     first after the gap.
//   - Back, so that a reading comes twice: the first.
//   - An expression whose hour field is * has no use for either: it goes by the
//     clock's face through both, so that "0 * * * *" comes once every real hour,
//     with no hour left out or doubled.

// searchYears is how far to look for the next instant. The longest wait of the
// calendar without weekdays is 8 years (29 February across 2100), with them 40.
const searchYears = 45

var parser = func() cron.Parser {
	p := cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
		cron.Descriptor | cron.Extended | cron.DowOrDom) // DowOrDom: either day matches, as crontab(5) has it
	return p.WithMaxSearchYears(searchYears)
}()

// zoned is a cron expression in a time zone.
type zoned struct {
	wall      *cron.SpecSchedule // readings, as if UTC
	zone      *time.Location
	everyHour bool
}

func parseCron(text, expr string) (*zoned, error) {
	zone := time.UTC
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		name, ok := strings.CutPrefix(expr, prefix)
		if !ok {
			continue
		}
		name, expr, _ = strings.Cut(name, " ")
		z, err := time.LoadLocation(name)
		// "Local" would mean another thing on each machine.
		if err != nil || name == "" || name == "Local" {
			return nil, refuse(text, "time zone %q is not known, must be a name such as Europe/Berlin", name)
		}
		zone, expr = z, strings.TrimSpace(expr)
		break
	}
	if n := len(strings.Fields(expr)); !strings.HasPrefix(expr, "@") && n != 5 && n != 6 {
		return nil, refuse(text, `must be "immediate", "every" and a duration, or a cron expression of 5 or 6 fields (has %d)`, n)
	}
	if strings.Contains(expr, "TZ=") {
		return nil, refuse(text, "time zone is given twice")
	}
	s, err := parser.Parse("CRON_TZ=UTC " + expr)
	if err != nil {
		return nil, refuse(text, "is no valid cron expression: %v", err)
	}
	wall, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, refuse(text, "is not a cron expression that names times of day")
	}
	const allHours = 1<<24 - 1
	z := &zoned{wall: wall, zone: zone, everyHour: wall.Hour&allHours == allHours}
	// Any year will do: the calendar repeats.
	if wall.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)).IsZero() {
		return nil, refuse(text, "names a date that never comes")
	}
	return z, nil
}

// reading is what the zone's clock shows at t, as if it were UTC.
func (z *zoned) reading(t time.Time) time.Time {
	_, offset := t.In(z.zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// shift is by how much the clock was last moved before or at t (forward:
// positive), and when. The instant is zero where it never was.
func (z *zoned) shift(t time.Time) (by time.Duration, at time.Time) {
	at, _ = t.In(z.zone).ZoneBounds()
	if at.IsZero() {
		return 0, at
	}
	_, before := at.Add(-time.Second).In(z.zone).Zone()
	_, after := at.In(z.zone).Zone()
	return time.Duration(after-before) * time.Second, at
}

// instant is when the clock first shows a reading, or the end of the gap that
// swallowed it.
func (z *zoned) instant(reading time.Time) time.Time {
	y, mo, d := reading.Date()
	h, mi, s := reading.Clock()
	t := time.Date(y, mo, d, h, mi, s, 0, z.zone)
	if !z.reading(t).Equal(reading) {
		// A gap: time.Date has gone by the offset before it or after it.
		by, at := z.shift(t)
		if from := z.reading(at).Add(-by); at.IsZero() || reading.Before(from) || !reading.Before(from.Add(by)) {
			_, at = t.ZoneBounds()
		}
		return at.UTC()
	}
	if by, at := z.shift(t); by < 0 && t.Sub(at) < -by {
		t = t.Add(by) // the second time: go to the first
	}
	return t.UTC()
}

// from is the first reading that is not before r, to is the last that is not
// after it; both zero if none.
func (z *zoned) from(r time.Time) time.Time { return z.wall.Next(r.Add(-time.Nanosecond)) }
func (z *zoned) to(r time.Time) time.Time   { return z.wall.Prev(r.Add(time.Second)) }

func (z *zoned) next(t time.Time) time.Time {
	if t.Nanosecond() != 0 {
		t = t.Truncate(time.Second).Add(time.Second)
	}
	if z.everyHour {
		return z.nextOnFace(t)
	}
	r := z.reading(t)
	by, at := z.shift(t)
	if by > 0 && t.Equal(at) {
		r = r.Add(-by) // the readings in the gap are due now
	}
	if by < 0 && t.Sub(at) < -by {
		r = z.reading(at).Add(-by) // these readings come again: go on where the first time ended
	}
	r = z.from(r)
	if r.IsZero() {
		return r
	}
	return z.instant(r)
}

func (z *zoned) last(t time.Time) time.Time {
	t = t.Truncate(time.Second)
	if z.everyHour {
		return z.lastOnFace(t)
	}
	r := z.reading(t)
	if by, at := z.shift(t); by < 0 && t.Sub(at) < -by {
		r = z.reading(at).Add(-by - time.Second)
	}
	r = z.to(r)
	if r.IsZero() {
		return r
	}
	return z.instant(r)
}

// nextOnFace goes from one stretch between moves of the clock to the next.
func (z *zoned) nextOnFace(t time.Time) time.Time {
	for {
		r := z.reading(t)
		found := z.from(r)
		if found.IsZero() {
			return found
		}
		at := t.Add(found.Sub(r)).UTC()
		_, end := t.In(z.zone).ZoneBounds()
		if end.IsZero() || at.Before(end) {
			return at
		}
		t = end
	}
}

func (z *zoned) lastOnFace(t time.Time) time.Time {
	for {
		r := z.reading(t)
		found := z.to(r)
		if found.IsZero() {
			return found
		}
		at := t.Add(found.Sub(r)).UTC()
		start, _ := t.In(z.zone).ZoneBounds()
		if start.IsZero() || !at.Before(start) {
			return at
		}
		t = start.Add(-time.Second)
	}
}
