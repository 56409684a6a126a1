package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestLogSaysOnceWhatFailsAgainAndAgain(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &repeats{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	lines := func() []string {
		defer out.Reset()
		if out.Len() == 0 {
			return nil
		}
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	for i := range 1000 {
		r.say(slog.LevelError, "call failed", fmt.Sprint("away from port ", i), "call", fmt.Sprint("schedule", i))
	}
	r.say(slog.LevelError, "call failed", "full", "call", "schedule")
	if got := lines(); len(got) != 2 || !strings.Contains(got[0], "call=schedule0") {
		t.Fatalf("at first:\n%s", strings.Join(got, "\n"))
	}
	now = now.Add(sayAgain - 1)
	r.tell()
	if got := lines(); got != nil {
		t.Fatalf("too early: %v", got)
	}
	now = now.Add(time.Second)
	r.tell()
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "times=999") || !strings.Contains(got[0], "call=schedule999") || !strings.Contains(got[0], "level=ERROR") {
		t.Fatalf("after a while: %v", got)
	}
	now = now.Add(sayAgain)
	r.tell() // nothing came any more
	r.say(slog.LevelError, "call failed", "away from port 1", "call", "again")
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "call=again") || strings.Contains(got[0], "times") {
		t.Fatalf("after it was over: %v", got)
	}
	for i := range 10 * manyFailures {
		r.say(slog.LevelError, "call failed", strings.Repeat("x", i))
	}
	if got := lines(); len(got) > manyFailures+1 || len(r.kinds) > manyFailures+1 {
		t.Errorf("%d lines, %d kinds", len(got), len(r.kinds))
	}
}
