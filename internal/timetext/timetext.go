// Package timetext reads durations and times as people write them: on the
// command line and in HTTP requests. It refuses what could be read in two ways,
// a bare number above all, and says what to write instead.
package timetext

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// Duration reads a Go duration ("1h30m", "250ms") or an ISO 8601 one ("PT30M",
// "P3D", "P1W"; a day is 24 hours). It may be negative: limits are for others to
// check. The error is a *store.InputError about the field.
func Duration(field, text string) (time.Duration, error) {
	refuse := func(problem string, args ...any) (time.Duration, error) {
		return 0, store.NewInputError(field, text, problem, args...)
	}
	const form = "is not a duration: write 30m, 1h30m, 250ms or, in ISO 8601, PT30M"
	if text == "" {
		return refuse("is empty: write a duration such as 30m, 1h30m, 250ms or, in ISO 8601, PT30M")
	}
	if isNumber(text) {
		return refuse("has no unit: write %[1]ss for seconds, %[1]sms for milliseconds, %[1]sm for minutes", text)
	}
	unsigned := strings.TrimLeft(text, "+-")
	if strings.HasPrefix(unsigned, "P") || strings.HasPrefix(unsigned, "p") {
		d, problem := iso(text)
		if problem != "" {
			return refuse("%s", problem)
		}
		return d, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if last := text[len(text)-1]; strings.ContainsRune("dwDW", rune(last)) && isNumber(text[:len(text)-1]) {
		return refuse("has a unit that is not known here: write days and weeks as hours (24h, 168h) or in ISO 8601 (P1D, P1W)")
	}
	if goDurationShape(text) {
		return refuse("is too long: the limit is %v, about 292 years; give a due time instead", time.Duration(math.MaxInt64))
	}
	return refuse(form)
}

// isNumber says whether the text is a number without a unit.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	digits := strings.ContainsAny(text, "0123456789")
	return digits && (err == nil || strings.Contains(err.Error(), "out of range"))
}

// goDurationShape says whether the text is numbers with units, so that
// time.ParseDuration can only have refused it for its size.
func goDurationShape(text string) bool {
	text = strings.TrimLeft(text, "+-")
	for text != "" {
		digits := len(text) - len(strings.TrimLeft(text, "0123456789."))
		if digits == 0 || !isNumber(text[:digits]) {
			return false
		}
		text = text[digits:]
		letters := len(text) - len(strings.TrimLeft(text, "nsuµμmh"))
		switch text[:letters] {
		case "ns", "us", "µs", "μs", "ms", "s", "m", "h":
		default:
			return false
		}
		text = text[letters:]
	}
	return true
}

// Time reads an RFC 3339 time; the zone must be given. The error is a
// *store.InputError about the field.
func Time(field, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err == nil {
		return t, nil
	}
	refuse := func(problem string) (time.Time, error) {
		return time.Time{}, store.NewInputError(field, text, problem)
	}
	const example = "2030-01-31T07:00:00Z or 2030-01-31T07:00:00+08:00"
	if text == "" {
		return refuse("is empty: write a time such as " + example)
	}
	if isNumber(text) {
		return refuse("is a bare number, which could be seconds or milliseconds: write a time such as " + example)
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04", time.DateOnly} {
		if _, err := time.Parse(layout, text); err == nil {
			return refuse("has no zone: write " + example)
		}
	}
	// A year of more than four digits is no RFC 3339; say what is wrong with it.
	year, rest, ok := strings.Cut(strings.TrimLeft(text, "+-"), "-")
	if ok && len(year) > 4 && isNumber(year) {
		if _, err := time.Parse(time.RFC3339Nano, "2000-"+rest); err == nil {
			return refuse("is outside the years 0000 to 9999; the latest due time is " + store.MaxTime.Format(time.RFC3339Nano))
		}
	}
	return refuse("is not a time that is in the calendar and in RFC 3339: write " + example)
}
