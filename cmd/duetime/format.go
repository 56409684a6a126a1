package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/duetime/duetime"
)

// timeLayout is RFC 3339 with milliseconds, the precision of due times.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeLayout)
}

// local is a time for people: in their zone, with the zone named.
func local(t time.Time) string {
	layout := "2006-01-02 15:04:05 MST"
	if t.Nanosecond() != 0 {
		layout = "2006-01-02 15:04:05.000 MST"
	}
	return t.Local().Format(layout)
}

// relative is a time as people speak of it: "in 29 m", "3 s ago".
func relative(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	// Not t.Sub(now), which stops at 292 years.
	ms := t.UnixMilli() - now.UnixMilli()
	// Nearer than it takes to ask the store and to print the answer.
	if -50 <= ms && ms <= 50 {
		return "now"
	}
	if ms < 0 {
		return span(-ms) + " ago"
	}
	return "in " + span(ms)
}

var spanUnits = []struct {
	name string
	ms   int64
}{{"y", 365 * 86_400_000}, {"d", 86_400_000}, {"h", 3_600_000}, {"m", 60_000}, {"s", 1000}, {"ms", 1}}

// span is a length of time in its largest unit, and the next one where the
// largest is small enough for that to matter, rounded to what is shown.
func span(ms int64) string {
	unit := func() int {
		for i, u := range spanUnits {
			if ms >= u.ms {
				return i
			}
		}
		return len(spanUnits) - 1
	}
	// fine is the smallest unit that is shown beside unit i.
	fine := func(i int) int {
		if u := spanUnits[i]; ms/u.ms < 10 && u.ms > 1000 {
			return i + 1
		}
		return i
	}
	p := spanUnits[fine(unit())].ms
	ms = (ms + p/2) / p * p
	i := unit() // rounding may have made a minute of 60 seconds
	u := spanUnits[i]
	text := fmt.Sprintf("%d %s", ms/u.ms, u.name)
	if f := spanUnits[fine(i)]; f != u && ms%u.ms >= f.ms {
		text += fmt.Sprintf(" %d %s", ms%u.ms/f.ms, f.name)
	}
	return text
}

// preview shows a payload or an error text in a table: in one line, without
// anything that could move the cursor.
func preview(s string, width int) string {
	if !utf8.ValidString(s) {
		return fmt.Sprintf("(%d bytes)", len(s))
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == width {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			r = ' '
		case !unicode.IsPrint(r):
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// table prints rows in columns. The first row is the heading.
func table(w io.Writer, rows [][]string) error {
	var widths []int // of all columns
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], screenWidth(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-screenWidth(cell)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// screenWidth is how many columns of a terminal a text takes: Chinese characters and
// emoji take two, accents that go with the letter before them none.
func screenWidth(s string) int {
	n := 0
	for _, r := range s {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// printJSON prints one value in one line.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// HTML escapes would change payloads.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// taskJSON is a task as the HTTP API shows it.
type taskJSON struct {
	Queue         string            `json:"queue"`
	ID            string            `json:"id"`
	State         string            `json:"state,omitempty"`
	Payload       json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64 *string           `json:"payload_base64,omitempty"`
	PayloadText   string            `json:"payload_text,omitempty"` // beside the base64, where it is text
	Headers       map[string]string `json:"headers,omitempty"`
	DueAt         string            `json:"due_at"`
	CreatedAt     string            `json:"created_at,omitempty"`
	Failures      int               `json:"failures"`
	Lost          int               `json:"lost"`
	MaxAttempts   int               `json:"max_attempts,omitempty"`
	LastError     string            `json:"last_error,omitempty"`
	Worker        string            `json:"worker,omitempty"`
	LeaseUntil    string            `json:"lease_until,omitempty"`
}

func toJSON(t *duetime.Task, payloads bool) taskJSON {
	j := taskJSON{
		Queue: t.Queue, ID: t.ID, Headers: t.Headers,
		DueAt: utc(t.Due), CreatedAt: utc(t.Created),
		Failures: t.Failures, Lost: t.Lost, MaxAttempts: t.MaxAttempts, LastError: t.LastError,
		Worker: t.Worker, LeaseUntil: utc(t.LeaseUntil),
	}
	if t.State != 0 {
		j.State = t.State.String()
	}
	if payloads {
		j.setPayload(t.Payload)
	}
	return j
}

// setPayload shows JSON as JSON and everything else in base64. JSON with broken
// UTF-8 in it would come out changed, so it is not JSON here.
func (j *taskJSON) setPayload(payload []byte) {
	if json.Valid(payload) && utf8.Valid(payload) {
		j.Payload = payload
		return
	}
	encoded := base64.StdEncoding.EncodeToString(payload)
	j.PayloadBase64 = &encoded
	if len(payload) > 0 && utf8.Valid(payload) && !bytes.ContainsFunc(payload, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
	}) {
		j.PayloadText = string(payload)
	}
}

// settingsJSON is a queue's settings as the HTTP API shows them.
type settingsJSON struct {
	Version     int64       `json:"version"`
	Paused      bool        `json:"paused"`
	MaxAttempts int         `json:"max_attempts"`
	MaxLost     int         `json:"max_lost"`
	Backoff     backoffJSON `json:"backoff"`
	Lease       string      `json:"lease"`
	Release     string      `json:"release"`
}

type backoffJSON struct {
	Initial string  `json:"initial"`
	Max     string  `json:"max"`
	Factor  float64 `json:"factor"`
	Jitter  float64 `json:"jitter"`
}

func settingsToJSON(s duetime.Settings) settingsJSON {
	return settingsJSON{
		Version: s.Version, Paused: s.Paused, MaxAttempts: s.MaxAttempts, MaxLost: s.MaxLost,
		Backoff: backoffJSON{
			Initial: shortDuration(s.Backoff.Initial), Max: shortDuration(s.Backoff.Max),
			Factor: s.Backoff.Factor, Jitter: s.Backoff.Jitter,
		},
		Lease: shortDuration(s.Lease), Release: s.Release,
	}
}

// shortDuration prints 1h instead of 1h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// count prints a number with its noun.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// plural is one for 1, and otherwise many, which may have a %d for the number.
func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return strings.Replace(many, "%d", number(n), 1)
}

// milliseconds prints a duration as the tables do, with two decimals.
func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if math.Abs(ms) >= 100 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}
