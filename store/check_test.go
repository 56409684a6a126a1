package store_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/duetime/duetime/store"
)

// field is the field that an error names; empty where there is none.
func field(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var input *store.InputError
	if !errors.As(err, &input) {
		t.Fatalf("%v is not an *InputError", err)
	}
	if input.Value == "" || input.Problem == "" || len(err.Error()) > 400 {
		t.Errorf("error %q has no value or problem, or is too long", err)
	}
	return input.Field
}

func TestDueTime(t *testing.T) {
	now := time.Date(2027, 3, 1, 12, 0, 0, 300_000, time.UTC)
	for _, c := range []struct {
		name  string
		due   time.Time
		delay time.Duration
		want  time.Time
		field string
	}{
		{"now, rounded down", time.Time{}, 0, time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC), ""},
		{"a delay", time.Time{}, 1500 * time.Microsecond, time.Date(2027, 3, 1, 12, 0, 0, 2e6, time.UTC), ""},
		{"a delay that ends on the millisecond", time.Time{}, 700 * time.Microsecond, time.Date(2027, 3, 1, 12, 0, 0, 1e6, time.UTC), ""},
		{"the longest delay", time.Time{}, math.MaxInt64, store.CeilMilli(now.Add(math.MaxInt64)), ""},
		{"a negative delay", time.Time{}, -1, time.Time{}, "delay"},
		{"the most negative delay", time.Time{}, math.MinInt64, time.Time{}, "delay"},
		{"both", now, 1, time.Time{}, "delay"},
		{"the first due time", time.Unix(0, 0), 0, store.MinTime, ""},
		{"before it", time.Unix(0, -1), 0, time.Time{}, "due_at"},
		{"the last due time", store.MaxTime, 0, store.MaxTime, ""},
		{"a nanosecond after it", store.MaxTime.Add(1), 0, time.Time{}, "due_at"},
		{"so far that milliseconds wrap round", time.Unix(math.MaxInt64/2, 0), 0, time.Time{}, "due_at"},
		{"so far back that milliseconds wrap round", time.Unix(math.MinInt64/2, 0), 0, time.Time{}, "due_at"},
		{"another zone", time.Date(2027, 3, 1, 20, 0, 0, 0, time.FixedZone("", 8*3600)), 0, time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC), ""},
	} {
		got, err := store.DueTime(now, c.due, c.delay)
		if f := field(t, err); f != c.field || !got.Equal(c.want) {
			t.Errorf("%s: %v, %v; want %v, field %q", c.name, got, err, c.want, c.field)
		}
		if err == nil && got.Location() != time.UTC {
			t.Errorf("%s: in %v", c.name, got.Location())
		}
	}
	if _, err := store.DueTime(store.MaxTime, time.Time{}, time.Millisecond); field(t, err) != "delay" {
		t.Errorf("a delay past the last due time: %v", err)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "A:b.c_d-e", "0", strings.Repeat("q", store.MaxQueueBytes)} {
		if err := store.CheckQueue(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".a", ":a", "-a", "_a", "a b", "a/b", "ä", "a\x00", "a{b}", strings.Repeat("q", store.MaxQueueBytes+1)} {
		if field(t, store.CheckQueue(name)) != "queue" {
			t.Errorf("queue %q is allowed", name)
		}
	}
	for _, id := range []string{" ", ".", "..", "a/b", "{}", "ключ", "😀", "%00", strings.Repeat("i", store.MaxIDBytes)} {
		if err := store.CheckID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "\x00", "a\n", "\x7f", "\u0085", "\xff", "é\xc3", strings.Repeat("i", store.MaxIDBytes+1)} {
		if field(t, store.CheckID(id)) != "id" {
			t.Errorf("id %q is allowed", id)
		}
	}
}

func TestCleanError(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "",
		"line\nline\ttab":  "line\nline\ttab",
		"a\x00b\x1b[31m\r": "ab[31m",
		"\xC3\x28":         "\uFFFD(",
		"敏琳张 😀":            "敏琳张 😀",
	} {
		if got := store.CleanError(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{
		strings.Repeat("x", 10<<20), strings.Repeat("€", 10_000), strings.Repeat("x\xff", 100_000), "a" + strings.Repeat("😀", 5000),
	} {
		got := store.CleanError(text)
		if len(got) > store.MaxErrorBytes || len(got) < store.MaxErrorBytes-8 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%.10q… of %d bytes became %d bytes ending in %q", text, len(text), len(got), got[len(got)-8:])
		}
	}
	exact := strings.Repeat("x", store.MaxErrorBytes)
	if store.CleanError(exact) != exact {
		t.Error("a text of the allowed length was cut")
	}
}

func TestCheckSettlement(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		s     store.Settlement
		field string
	}{
		{store.Settlement{Action: store.Ack}, ""},
		{store.Settlement{Action: store.Bury, Error: "\xff"}, ""},
		{store.Settlement{Action: store.Retry, Delay: time.Hour}, ""},
		{store.Settlement{Action: store.Retry, Backoff: true}, ""},
		{store.Settlement{Action: store.Retry, Backoff: true, Delay: 1}, "delay"},
		{store.Settlement{Action: store.Snooze, Delay: -1}, "delay"},
		{store.Settlement{Action: store.Extend}, ""},
		{store.Settlement{Action: store.Extend, Lease: store.MaxLease}, ""},
		{store.Settlement{Action: store.Extend, Lease: store.MaxLease + 1}, "lease"},
		{store.Settlement{Action: store.Extend, Lease: store.MinLease - 1}, "lease"},
		{store.Settlement{}, "action"},
		{store.Settlement{Action: store.Extend + 1}, "action"},
	} {
		if f := field(t, c.s.Check(now)); f != c.field {
			t.Errorf("%+v: field %q, want %q", c.s, f, c.field)
		}
	}
}

func TestDefaultSettingsAreAllowed(t *testing.T) {
	s := store.DefaultSettings()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestNamesOfStatesAndOutcomes(t *testing.T) {
	for _, s := range store.States() {
		if got, err := store.ParseState(s.String()); err != nil || got != s {
			t.Errorf("state %v is read as %v, %v", s, got, err)
		}
	}
	for _, name := range []string{"", "unknown", "Ready"} {
		if _, err := store.ParseState(name); field(t, err) != "state" {
			t.Errorf("state %q is allowed", name)
		}
	}
	for o := store.Refused; o <= store.Stale; o++ {
		if got, ok := store.ParseOutcome(o.String()); !ok || got != o {
			t.Errorf("outcome %v is read as %v", o, got)
		}
	}
	if _, ok := store.ParseOutcome("unknown"); ok {
		t.Error("an unknown outcome is read")
	}
}

func TestUnsupportedNamesStoreAndOperation(t *testing.T) {
	err := store.Unsupported("rabbit", "cancel")
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "rabbit") || !strings.Contains(err.Error(), "cancel") {
		t.Error(err)
	}
}

// wrapper is a store around another, as As has to see through it.
type wrapper struct{ store.Store }

func (w wrapper) Unwrap() store.Store { return w.Store }

type optional struct{ store.Store }

func (optional) Extra() int { return 7 }

func TestAsSeesThroughWrappers(t *testing.T) {
	type extra interface{ Extra() int }
	if e, ok := store.As[extra](wrapper{wrapper{optional{}}}); !ok || e.Extra() != 7 {
		t.Error("not found behind two wrappers")
	}
	if _, ok := store.As[extra](wrapper{wrapper{}}); ok {
		t.Error("found where it is not")
	}
}
