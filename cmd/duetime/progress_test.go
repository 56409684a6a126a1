package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	p := &progress{w: &out, width: func() int { return 70 }, now: func() time.Time { return now }}
	last := func() string {
		lines := strings.Split(out.String(), "\r")
		return lines[len(lines)-1]
	}
	p.show(0, 4000, "")
	if got, want := last(), "[........................]   0%  0 of 4000\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	now = now.Add(50 * time.Millisecond)
	length := out.Len()
	p.show(1, 4000, "")
	if out.Len() != length {
		t.Errorf("drawn again after 50 ms")
	}
	now = now.Add(1950 * time.Millisecond)
	p.show(1000, 4000, "orders-of-yesterday")
	if got, want := last(), "[######..................]  25%  1000 of 4000, 500/s, 6 s left  order\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(last()) - len("\x1b[K"); n >= 70 {
		t.Errorf("a line of %d characters on a terminal of 70", n)
	}
	now = now.Add(time.Second)
	p.show(5000, 4000, "") // more came meanwhile
	if got := last(); !strings.HasPrefix(got, "["+strings.Repeat("#", barWidth)+"] 100%") {
		t.Errorf("%q", got)
	}
	now = now.Add(time.Second)
	p.show(7, 0, "")
	if got := last(); !strings.HasPrefix(got, "7") {
		t.Errorf("%q", got)
	}
	p.clear()
	if last() != "\x1b[K" {
		t.Errorf("%q after clear", last())
	}
}

func TestProgressIsSilentElsewhere(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.show(1, 2, "note")
	p.clear()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}
