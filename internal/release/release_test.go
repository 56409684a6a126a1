package release

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the tests name zones

	"github.com/duetime/duetime/store"
)

func at(t testing.TB, s string) time.Time {
	t.Helper()
	x, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return x.UTC()
}

func parseOK(t testing.TB, text string) *Schedule {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return s
}

func TestImmediate(t *testing.T) {
	s := parseOK(t, "immediate")
	now := at(t, "2027-01-02T03:04:05.678912Z")
	if !s.Last(now).Equal(now) || !s.Next(now).Equal(now) {
		t.Errorf("Last %v, Next %v, want %v", s.Last(now), s.Next(now), now)
	}
}

func TestEvery(t *testing.T) {
	for _, c := range []struct{ text, now, last, next string }{
		{"every 5s", "2027-01-02T03:04:05Z", "2027-01-02T03:04:05Z", "2027-01-02T03:04:05Z"},
		{"every 5s", "2027-01-02T03:04:05.001Z", "2027-01-02T03:04:05Z", "2027-01-02T03:04:10Z"},
		{"every 5s", "2027-01-02T03:04:09.9999999Z", "2027-01-02T03:04:05Z", "2027-01-02T03:04:10Z"},
		{"every 5s", "2027-01-02T03:04:05.0000001Z", "2027-01-02T03:04:05Z", "2027-01-02T03:04:10Z"},
		{"every 1h", "2027-10-31T00:30:00Z", "2027-10-31T00:00:00Z", "2027-10-31T01:00:00Z"},
		{"@every 1h", "2027-10-31T00:30:00Z", "2027-10-31T00:00:00Z", "2027-10-31T01:00:00Z"},
		{"every 1ms", "2027-01-02T03:04:05.0019Z", "2027-01-02T03:04:05.001Z", "2027-01-02T03:04:05.002Z"},
		{"every 7s", "1969-12-31T23:59:59Z", "1969-12-31T23:59:53Z", "1970-01-01T00:00:00Z"},
	} {
		s := parseOK(t, c.text)
		now := at(t, c.now)
		if got := s.Last(now); !got.Equal(at(t, c.last)) {
			t.Errorf("%s: Last(%s) = %v, want %s", c.text, c.now, got, c.last)
		}
		if got := s.Next(now); !got.Equal(at(t, c.next)) {
			t.Errorf("%s: Next(%s) = %v, want %s", c.text, c.now, got, c.next)
		}
	}
}

// run lists the n instants from a time on.
func run(s *Schedule, from time.Time, n int) []time.Time {
	var out []time.Time
	for range n {
		x := s.Next(from)
		out = append(out, x)
		from = x.Add(time.Second)
	}
	return out
}

func TestCronWhereTheClockIsMoved(t *testing.T) {
	for _, c := range []struct{ name, expr, zone, from, want string }{
		{
			"gap: first moment after it", "30 2 * * *", "Europe/Berlin", "2027-03-26T12:00:00Z",
			"2027-03-27T02:30:00+01:00 2027-03-28T03:00:00+02:00 2027-03-29T02:30:00+02:00",
		},
		{
			"gap, several readings: one instant", "0,30,45 2 * * *", "Europe/Berlin", "2027-03-28T00:00:00Z",
			"2027-03-28T03:00:00+02:00 2027-03-29T02:00:00+02:00",
		},
		{
			"gap and its end both named: one instant", "0 2,3 * * *", "Europe/Berlin", "2027-03-28T00:00:00Z",
			"2027-03-28T03:00:00+02:00 2027-03-29T02:00:00+02:00",
		},
		{
			"overlap: first only", "30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z",
			"2027-10-31T02:30:00+02:00 2027-11-01T02:30:00+01:00",
		},
		{
			"overlap, asked in the second pass", "30 2 * * *", "Europe/Berlin", "2027-10-31T01:10:00Z",
			"2027-11-01T02:30:00+01:00",
		},
		{
			"New York gap", "30 2 * * *", "America/New_York", "2027-03-13T12:00:00Z",
			"2027-03-14T03:00:00-04:00 2027-03-15T02:30:00-04:00",
		},
		{
			"New York overlap", "30 1 * * *", "America/New_York", "2027-11-06T12:00:00Z",
			"2027-11-07T01:30:00-04:00 2027-11-08T01:30:00-05:00",
		},
		{
			"every hour, back: once a real hour", "0 * * * *", "Europe/Berlin", "2027-10-30T23:30:00Z",
			"2027-10-31T02:00:00+02:00 2027-10-31T02:00:00+01:00 2027-10-31T03:00:00+01:00",
		},
		{
			"every hour, forward: once a real hour", "30 * * * *", "Europe/Berlin", "2027-03-28T00:00:00Z",
			"2027-03-28T01:30:00+01:00 2027-03-28T03:30:00+02:00 2027-03-28T04:30:00+02:00",
		},
		{
			"every quarter, back", "*/15 * * * *", "America/New_York", "2027-11-07T05:40:00Z",
			"2027-11-07T01:45:00-04:00 2027-11-07T01:00:00-05:00 2027-11-07T01:15:00-05:00",
		},
		{
			"half-hour gap", "15 2 * * *", "Australia/Lord_Howe", "2027-10-02T00:00:00Z",
			"2027-10-03T02:30:00+11:00 2027-10-04T02:15:00+11:00",
		},
		{
			"half-hour overlap", "45 1 * * *", "Australia/Lord_Howe", "2027-04-03T00:00:00Z",
			"2027-04-04T01:45:00+11:00 2027-04-05T01:45:00+10:30",
		},
		{
			"every quarter through a half-hour gap", "*/15 * * * *", "Australia/Lord_Howe", "2027-10-02T15:15:00Z",
			"2027-10-03T01:45:00+10:30 2027-10-03T02:30:00+11:00 2027-10-03T02:45:00+11:00",
		},
		{
			"midnight gap", "0 0 * * *", "America/Santiago", "2027-09-04T12:00:00Z",
			"2027-09-05T01:00:00-03:00 2027-09-06T00:00:00-03:00",
		},
		{
			"midnight gap, half past", "30 0 * * *", "America/Santiago", "2027-09-04T12:00:00Z",
			"2027-09-05T01:00:00-03:00 2027-09-06T00:30:00-03:00",
		},
		{
			"midnight overlap", "30 23 * * *", "America/Santiago", "2027-04-03T12:00:00Z",
			"2027-04-03T23:30:00-03:00 2027-04-04T23:30:00-04:00",
		},
		{
			"a whole day left out", "0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z",
			"2011-12-29T12:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parseOK(t, "CRON_TZ="+c.zone+" "+c.expr)
			want := strings.Fields(c.want)
			for i, got := range run(s, at(t, c.from), len(want)) {
				if !got.Equal(at(t, want[i])) {
					t.Errorf("%d: got %v, want %s", i, got.In(s.cron.zone).Format(time.RFC3339), want[i])
				}
			}
		})
	}
}

// A plain and slow model: walk over the minutes of real time.
func TestCronAgainstWalk(t *testing.T) {
	type matcher func(h, m int) bool
	for _, c := range []struct {
		expr  string
		every bool // hour
		match matcher
	}{
		{"30 2 * * *", false, func(h, m int) bool { return h == 2 && m == 30 }},
		{"0 0 * * *", false, func(h, m int) bool { return h == 0 && m == 0 }},
		{"*/20 1-3 * * *", false, func(h, m int) bool { return h >= 1 && h <= 3 && m%20 == 0 }},
		{"45 23,0 * * *", false, func(h, m int) bool { return (h == 23 || h == 0) && m == 45 }},
		{"*/15 * * * *", true, func(h, m int) bool { return m%15 == 0 }},
		{"10 0-23 * * *", true, func(h, m int) bool { return m == 10 }},
	} {
		for zone, days := range map[string][]string{
			"Europe/Berlin":       {"2027-03-27", "2027-10-30"},
			"America/New_York":    {"2027-03-13", "2027-11-06"},
			"Australia/Lord_Howe": {"2027-04-02", "2027-10-01"},
			"America/Santiago":    {"2027-04-02", "2027-09-03"},
			"Africa/Casablanca":   {"2027-02-06", "2027-03-13"}, // summer time pauses for Ramadan
			"Pacific/Apia":        {"2011-12-28"},
			"Asia/Shanghai":       {"2027-06-01"},
		} {
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			s := parseOK(t, "TZ="+zone+" "+c.expr)
			for _, day := range days {
				start := at(t, day+"T00:00:00Z")
				var want []time.Time
				// No reading is older than the walk's start on the first day.
				seen := map[string]bool{}
				prev := start.Add(-24 * time.Hour)
				for x := prev.Add(time.Minute); x.Before(start.Add(4 * 24 * time.Hour)); x = x.Add(time.Minute) {
					wall, was := x.In(loc), prev.In(loc)
					hit := c.match(wall.Hour(), wall.Minute())
					if !c.every {
						key := wall.Format("2006-01-02 15:04")
						if seen[key] {
							hit = false
						}
						seen[key] = true
						_, before := was.Zone()
						_, after := wall.Zone()
						for gap := (after - before) / 60; gap > 0; gap-- { // minutes left out
							u := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute()-gap, 0, 0, time.UTC)
							hit = hit || c.match(u.Hour(), u.Minute())
						}
					}
					if hit && !x.Before(start) {
						want = append(want, x)
					}
					prev = x
				}
				got := run(s, start, len(want))
				for i := range want {
					if !got[i].Equal(want[i]) {
						t.Fatalf("%s in %s, %s: instant %d is %v, want %v", c.expr, zone, day, i,
							got[i].In(loc), want[i].In(loc))
					}
				}
				checkLast(t, s, want)
			}
		}
	}
}

// checkLast asks for the instant before every instant and between them.
func checkLast(t *testing.T, s *Schedule, instants []time.Time) {
	t.Helper()
	for i, x := range instants[:len(instants)-1] {
		next := instants[i+1]
		for _, now := range []time.Time{x, x.Add(time.Millisecond), x.Add(next.Sub(x) / 2), next.Add(-1)} {
			if got := s.Last(now); !got.Equal(x) {
				t.Fatalf("Last(%v) = %v, want %v", now, got, x)
			}
			if got := s.cron.last(now); !got.Equal(x) {
				t.Fatalf("without cache: last(%v) = %v, want %v", now, got, x)
			}
			if got := s.Next(now); now.After(x) && !got.Equal(next) {
				t.Fatalf("Next(%v) = %v, want %v", now, got, next)
			}
		}
	}
}

func TestCronLastAgreesWithNext(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, text := range []string{
		"0 0 29 2 *", "0 12 L * *", "0 0 L-3 * *", "0 0 LW * *", "0 0 15W * *", "0 0 * * SUN#2", "0 0 * * FRI#L", "0 0 ? * MON", "@yearly", "@weekly", "@midnight", "0 9 * * MON-FRI", "0 0 1 1 *", "15 30 7 */3 * *", "CRON_TZ=Europe/Berlin 30 2 * 3,10 *",
		"CRON_TZ=America/Santiago 0 0 * * *", "CRON_TZ=Asia/Kolkata */7 * * * * *", "@hourly", "@monthly", "0 8 1 * MON",
	} {
		s := parseOK(t, text)
		for range 300 {
			now := time.UnixMilli(rnd.Int64N(100*365*86400e3)).UTC().AddDate(10, 0, 0)
			last := s.Last(now)
			if last.IsZero() || last.After(now) {
				t.Fatalf("%s: Last(%v) = %v", text, now, last)
			}
			if got := s.cron.next(last); !got.Equal(last) {
				t.Fatalf("%s: Last(%v) = %v is no instant: Next of it is %v", text, now, last, got)
			}
			after := s.cron.next(last.Add(time.Second))
			if !after.After(now.Truncate(time.Second)) {
				t.Fatalf("%s: Last(%v) = %v, but %v is later", text, now, last, after)
			}
		}
	}
}

func TestCronDates(t *testing.T) {
	for _, c := range []struct{ text, from, want string }{
		{"0 0 29 2 *", "2027-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"30 * * * * *", "2027-01-01T00:00:00Z", "2027-01-01T00:00:30Z 2027-01-01T00:01:30Z"},
		{"CRON_TZ=Asia/Shanghai 0 0 7 * * *", "2027-01-01T00:00:00Z", "2027-01-01T23:00:00Z 2027-01-02T23:00:00Z"},
		{"0 0 13 * FRI", "2027-08-01T00:00:00Z", "2027-08-06T00:00:00Z 2027-08-13T00:00:00Z 2027-08-20T00:00:00Z"}, // either, as crontab has it
		{"0 0 * * SUN#2", "2027-02-01T00:00:00Z", "2027-02-14T00:00:00Z 2027-03-14T00:00:00Z 2027-04-11T00:00:00Z"},
		{"0 0 * * FRI#L", "2027-02-01T00:00:00Z", "2027-02-26T00:00:00Z 2027-03-26T00:00:00Z 2027-04-30T00:00:00Z"},
		{"0 0 15W * *", "2027-05-01T00:00:00Z", "2027-05-14T00:00:00Z 2027-06-15T00:00:00Z 2027-07-15T00:00:00Z 2027-08-16T00:00:00Z"},
		{"0 0 LW * *", "2027-02-01T00:00:00Z", "2027-02-26T00:00:00Z 2027-03-31T00:00:00Z 2027-04-30T00:00:00Z"},
		{"0 0 L-3 * *", "2027-02-01T00:00:00Z", "2027-02-25T00:00:00Z 2027-03-28T00:00:00Z"},
		{"0 0 ? * MON", "2027-02-02T00:00:00Z", "2027-02-08T00:00:00Z 2027-02-15T00:00:00Z"},
		{"0 9 15 * ?", "2027-02-01T00:00:00Z", "2027-02-15T09:00:00Z 2027-03-15T09:00:00Z"},
		{"@weekly", "2027-02-02T00:00:00Z", "2027-02-07T00:00:00Z 2027-02-14T00:00:00Z"},
		{"@midnight", "2027-02-01T00:00:01Z", "2027-02-02T00:00:00Z"},
		{"@yearly", "2027-02-01T00:00:01Z", "2028-01-01T00:00:00Z"},
		{"TZ=Asia/Shanghai @daily", "2027-02-01T00:00:01Z", "2027-02-01T16:00:00Z"},
		{"0 0 L * *", "2027-02-01T00:00:00Z", "2027-02-28T00:00:00Z 2027-03-31T00:00:00Z"},
		{"@daily", "2027-02-01T00:00:01Z", "2027-02-02T00:00:00Z"},
	} {
		s := parseOK(t, c.text)
		want := strings.Fields(c.want)
		for i, got := range run(s, at(t, c.from), len(want)) {
			if !got.Equal(at(t, want[i])) {
				t.Errorf("%s: %d: got %v, want %s", c.text, i, got, want[i])
			}
		}
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for text, problem := range map[string]string{
		"":                                      "must be",
		"now":                                   "5 or 6 fields (has 1)",
		"immediate please":                      `after "immediate"`,
		"every":                                 "duration",
		"every 5":                               "unit",
		"every 0s":                              "every 1ms to",
		"every -5s":                             "every 1ms to",
		"every 1500us":                          "whole number of milliseconds",
		"every 9000h":                           "every 1ms to",
		"0 0 31 4 *":                            "never comes",
		"0 0 30 2 *":                            "never comes",
		"0 0 31 2,4,6,9,11 *":                   "never comes",
		"* * * *":                               "has 4",
		"* * * * * * *":                         "has 7",
		"60 * * * *":                            "cron expression",
		"x * * * *":                             "cron expression",
		"TZ=Mars/Olympus 0 7 * * *":             "Mars/Olympus",
		"TZ=Local 0 7 * * *":                    "not known",
		"TZ=../../etc/passwd 0 7 * * *":         "not known",
		"CRON_TZ= 0 7 * * *":                    "not known",
		"TZ=UTC":                                "has 0",
		"TZ=UTC TZ=UTC 0 7 * * *":               "twice",
		"TZ=UTC TZ=UTC 7 * * *":                 "twice",
		"@sometimes":                            "cron expression",
		"@reboot":                               "cron expression",
		"0 0 * * SUN#6":                         "cron expression",
		"0 0 H * *":                             "cron expression",
		"0 7 * * *\n":                           "printable",
		"每天":                                    "printable",
		strings.Repeat("0,", 200) + "0 * * * *": "limit is 256",
	} {
		start := time.Now()
		_, err := Parse(text)
		var input *store.InputError
		if !errors.As(err, &input) {
			t.Errorf("Parse(%q): error %v, want *store.InputError", text, err)
			continue
		}
		if input.Field != "settings.release" || !strings.Contains(input.Problem, problem) {
			t.Errorf("Parse(%q): %v, want a problem with %q", text, err, problem)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Parse(%q) took %v", text, took)
		}
	}
}

func TestParseKeepsABoundedNumber(t *testing.T) {
	for i := range 3 * maxParsed {
		parseOK(t, "every "+time.Duration(i*1e6+1e6).String())
	}
	if n := len(parsed.m); n > maxParsed {
		t.Errorf("%d texts kept, want at most %d", n, maxParsed)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := parseOK(t, "CRON_TZ=Europe/Berlin * * * * * *")
	base := at(t, "2027-10-31T00:30:00Z")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				now := base.Add(time.Duration(g*i) * 777 * time.Millisecond)
				if got := s.Last(now); !got.Equal(now.Truncate(time.Second)) {
					t.Errorf("Last(%v) = %v", now, got)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkLastCron(b *testing.B) {
	s := parseOK(b, "CRON_TZ=Europe/Berlin 30 2 * * *")
	now := time.Now()
	for b.Loop() {
		s.Last(now)
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		parseOK(b, "CRON_TZ=Europe/Berlin 30 2 * * *")
	}
}
