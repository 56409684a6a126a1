package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime"
)

func TestRelative(t *testing.T) {
	now := time.Date(2030, 1, 31, 7, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{0, "now"},
		{50 * time.Millisecond, "now"},
		{-50 * time.Millisecond, "now"},
		{51 * time.Millisecond, "in 51 ms"},
		{-51 * time.Millisecond, "51 ms ago"},
		{999 * time.Millisecond, "in 999 ms"},
		{1500 * time.Millisecond, "in 2 s"},
		{29*time.Minute + 59990*time.Millisecond, "in 30 m"},
		{9*time.Minute + 59600*time.Millisecond, "in 10 m"},
		{59600 * time.Millisecond, "in 1 m"},
		{time.Hour + 59*time.Minute + 59*time.Second, "in 2 h"},
		{-3 * time.Second, "3 s ago"},
		{90 * time.Second, "in 1 m 30 s"},
		{29*time.Minute + 29*time.Second, "in 29 m"},
		{time.Hour, "in 1 h"},
		{time.Hour + 59*time.Minute, "in 1 h 59 m"},
		{-26 * time.Hour, "1 d 2 h ago"},
		{50 * 24 * time.Hour, "in 50 d"},
	} {
		if got := relative(now.Add(c.d), now); got != c.want {
			t.Errorf("%v: got %q, want %q", c.d, got, c.want)
		}
	}
	if got := relative(time.Time{}, now); got != "-" {
		t.Errorf("no time: got %q", got)
	}
	// Farther away than a time.Duration can say.
	if got := relative(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), now); got != "in 7975 y" {
		t.Errorf("the year 9999: got %q", got)
	}
}

func TestParseAt(t *testing.T) {
	zone := time.FixedZone("there", 8*3600)
	now := time.Date(2030, 1, 31, 7, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"07:01":                     time.Date(2030, 1, 31, 7, 1, 0, 0, zone),
		"23:59:59":                  time.Date(2030, 1, 31, 23, 59, 59, 0, zone),
		"07:00":                     time.Date(2030, 2, 1, 7, 0, 0, 0, zone), // that is now: the next one
		"06:59":                     time.Date(2030, 2, 1, 6, 59, 0, 0, zone),
		"2030-01-31T07:00:00Z":      time.Date(2030, 1, 31, 7, 0, 0, 0, time.UTC),
		"2030-01-31T07:00:00+01:00": time.Date(2030, 1, 31, 6, 0, 0, 0, time.UTC),
	} {
		got, err := parseAt(text, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

// TestParseAtSummerTime: a time of day that the change of the clocks skips, or
// brings twice, is still one that comes.
func TestParseAtSummerTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []time.Time{
		time.Date(2027, 3, 28, 1, 0, 0, 0, berlin),
		time.Date(2027, 10, 31, 1, 0, 0, 0, berlin),
	} {
		got, err := parseAt("02:30", now)
		if err != nil || !got.After(now) || got.Sub(now) > 25*time.Hour {
			t.Errorf("02:30 after %v: got %v, %v", now, got, err)
		}
	}
}

// TestPayloadJSON: a payload comes out of JSON as it went in, whatever it is.
func TestPayloadJSON(t *testing.T) {
	for _, payload := range []string{
		`{"id":9007199254740993,"f":1.0,"e":1e400,"z":-0}`,
		`{"a":"<script>&\u2028\ud800"}`,
		`"text"`, `null`, ``, `hello`, "\x00\xff", "{\"a\":\"\xff\"}", `{"a":1}{"b":2}`, "敏琳张 😀", `{"twice":1,"twice":2}`,
	} {
		var out bytes.Buffer
		if err := printJSON(&out, toJSON(&duetime.Task{Queue: "q", ID: "x", Payload: []byte(payload)}, true)); err != nil {
			t.Errorf("%q: %v", payload, err)
			continue
		}
		if strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%q: not one line: %q", payload, out.String())
		}
		var back struct {
			Payload json.RawMessage
			Base64  *[]byte `json:"payload_base64"`
		}
		if err := json.Unmarshal(out.Bytes(), &back); err != nil {
			t.Errorf("%q: %v in %s", payload, err, out.String())
			continue
		}
		got := string(back.Payload)
		if back.Base64 != nil {
			got = string(*back.Base64)
		}
		if got != payload {
			t.Errorf("%q: came back as %q", payload, got)
		}
	}
}

func TestPreview(t *testing.T) {
	for text, want := range map[string]string{
		"hello":            "hello",
		"a\nb\tc":          "a b c",
		"\x1b[2Jgone":      "\uFFFD[2Jgone",
		"0123456789abcdef": "0123456789…",
		"\xff\xfe":         "(2 bytes)",
		"敏琳张":              "敏琳张",
	} {
		if got := preview(text, 10); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTailWriter(t *testing.T) {
	w := &tailWriter{limit: 8}
	for _, s := range []string{"first ", "second ", "third"} {
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := string(w.text); got != "nd third" {
		t.Errorf("got %q", got)
	}
}

func TestTriesMade(t *testing.T) {
	settings := duetime.Settings{MaxAttempts: 25, MaxLost: 10}
	for _, c := range []struct {
		task duetime.Task
		want int
	}{
		{duetime.Task{Failures: 25, Lost: 1}, 26},
		{duetime.Task{Failures: 3, MaxAttempts: 3}, 3},
		{duetime.Task{Failures: 2, Lost: 10}, 12},
		{duetime.Task{}, 1}, // declared dead by its handler, at the first try
		{duetime.Task{Failures: 2, Lost: 1}, 4},
	} {
		if got := triesMade(&c.task, settings); got != c.want {
			t.Errorf("%d failures, %d lost: got %d, want %d", c.task.Failures, c.task.Lost, got, c.want)
		}
	}
}

// Columns stand under each other on a terminal, whatever the script.
func TestTableOfWideCharacters(t *testing.T) {
	var b bytes.Buffer
	if err := table(&b, [][]string{{"ID", "STATE", "X"}, {"订单-1", "ready", ""}, {"e\u0301", "dead", "y"}, {"😀a", "a", "z"}}); err != nil {
		t.Fatal(err)
	}
	want := "ID      STATE  X\n订单-1  ready\ne\u0301       dead   y\n😀a     a      z\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
