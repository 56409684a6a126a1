package timetext

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30m":                  30 * time.Minute,
		"1h30m":                90 * time.Minute,
		"250ms":                250 * time.Millisecond,
		"1.5s":                 1500 * time.Millisecond,
		"0s":                   0,
		"-1ms":                 -time.Millisecond,
		"2562047h47m16.854s":   2562047*time.Hour + 47*time.Minute + 16854*time.Millisecond,
		"PT30M":                30 * time.Minute,
		"pt30m":                30 * time.Minute,
		"PT1H30M":              90 * time.Minute,
		"PT0.25S":              250 * time.Millisecond,
		"PT0,25S":              250 * time.Millisecond,
		"P3D":                  72 * time.Hour,
		"P1W":                  168 * time.Hour,
		"P1DT12H":              36 * time.Hour,
		"P0.5D":                12 * time.Hour,
		"PT36H":                36 * time.Hour,
		"-PT5S":                -5 * time.Second,
		"PT9223372036.854775S": 9223372036854775 * time.Microsecond,
	} {
		got, err := Duration("delay", text)
		if err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestDurationRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "is empty",
		"30":                                  "has no unit: write 30s for seconds, 30ms for milliseconds",
		"0":                                   "has no unit",
		"-1":                                  "has no unit",
		"1e9":                                 "has no unit",
		"1e400":                               "has no unit",
		"9223372037s":                         "is too long",
		"9223372036854775807s":                "is too long",
		"99999999999999999999h":               "is too long",
		"PT9223372037S":                       "is too long",
		"P99999999999999999999D":              "is too long",
		"-PT9223372037S":                      "is too long",
		"3d":                                  "P1D",
		"2w":                                  "P1W",
		"soon":                                "is not a duration",
		"5 m":                                 "is not a duration",
		"5m ":                                 "is not a duration",
		"inf":                                 "is not a duration",
		"nan":                                 "is not a duration",
		"5x":                                  "is not a duration",
		"P":                                   "is not an ISO 8601 duration",
		"PT":                                  "is not an ISO 8601 duration",
		"P1DT":                                "is not an ISO 8601 duration",
		"PT5":                                 "is not an ISO 8601 duration",
		"P5":                                  "is not an ISO 8601 duration",
		"PT5M5H":                              "is not an ISO 8601 duration",
		"PT5M5M":                              "is not an ISO 8601 duration",
		"P5H":                                 "is not an ISO 8601 duration",
		"PTT5M":                               "is not an ISO 8601 duration",
		"PT.S":                                "is not an ISO 8601 duration",
		"PT.5S":                               "is not an ISO 8601 duration",
		"PT1.2.3S":                            "is not an ISO 8601 duration",
		"--PT5S":                              "is not an ISO 8601 duration",
		"PT1.5M5S":                            "not the last",
		"P1Y":                                 "years",
		"P1M":                                 "months",
		"P" + strings.Repeat("9", 1000) + "D": "is not an ISO 8601 duration",
	} {
		got, err := Duration("delay", text)
		checkRefused(t, text, got, err, want)
	}
}

func TestTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2030-01-31T07:00:00Z":          time.Date(2030, 1, 31, 7, 0, 0, 0, time.UTC),
		"2030-01-31T07:00:00.25Z":       time.Date(2030, 1, 31, 7, 0, 0, 250e6, time.UTC),
		"2030-01-31T07:00:00+08:00":     time.Date(2030, 1, 30, 23, 0, 0, 0, time.UTC),
		"9999-12-31T23:59:59.999Z":      store.MaxTime,
		"2100-02-28T00:00:00.999-11:30": time.Date(2100, 2, 28, 11, 30, 0, 999e6, time.UTC),
	} {
		got, err := Time("due_at", text)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestTimeRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "is empty",
		"1893456000":                   "bare number",
		"-1":                           "bare number",
		"2030-01-31T07:00:00":          "has no zone",
		"2030-01-31 07:00":             "has no zone",
		"2030-01-31":                   "has no zone",
		"2030-02-31T07:00:00Z":         "is not a time",
		"10000-01-01T00:00:00Z":        "9999",
		"292277026596-12-04T15:30:07Z": "9999",
		"tomorrow":                     "is not a time",
		"2030-01-31T07:00:00Z x":       "is not a time",
	} {
		got, err := Time("due_at", text)
		checkRefused(t, text, got, err, want)
	}
}

func checkRefused(t *testing.T, text string, got any, err error, want string) {
	t.Helper()
	var input *store.InputError
	if !errors.As(err, &input) {
		t.Errorf("%q: got %v, %v; want an InputError", text, got, err)
		return
	}
	if !strings.Contains(input.Problem, want) {
		t.Errorf("%q: got %q; want %q in it", text, input.Problem, want)
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"5s", "PT5S", "P1DT2H", "-PT0,5S", "1h2m3s", "5", "P1Y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Duration("delay", text)
		if err != nil {
			checkRefused(t, text, d, err, "")
			return
		}
		// What is read back from the printed form is the same.
		again, err := Duration("delay", d.String())
		if err != nil || again != d {
			t.Errorf("%q: read as %v, and that as %v, %v", text, d, again, err)
		}
	})
}
