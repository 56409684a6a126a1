package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// buffer is safe for the handler and for what schedules, which write at the same
// time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func TestOrdersAreClosedAtTheBeatOfTheTimerThatIsSet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	redis := testserver.Redis(t, nil)
	var out buffer
	if err := run(ctx, &out, "redis://"+redis.Addr); err != nil {
		t.Fatal(err)
	}
	text := out.b.String()
	if want := "15 orders closed under 3 timers\n"; !strings.HasSuffix(text, want) {
		t.Errorf("ends with %q, want %q", text, want)
	}
	if n := strings.Count(text, "order-1-3 could not be closed, and comes back\n"); n != 1 {
		t.Errorf("order-1-3 failed %d times: %s", n, text)
	}
	seconds := func(text string) float64 {
		s, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	closed := make(map[string]int)
	early := make(map[string]int) // those of a round that were closed between two beats
	for _, l := range regexp.MustCompile(`(?m)^order-(\d)-(\d) was due at ([0-9.]+), closed at ([0-9.]+)$`).FindAllStringSubmatch(text, -1) {
		closed[l[1]+"-"+l[2]]++
		due, at := seconds(l[3]), seconds(l[4])
		if at < due {
			at += 60
		}
		beat := map[string]float64{"1": 2, "2": 1}[l[1]]
		if beat > 0 && int(at/beat) == int((due-0.001)/beat) {
			t.Errorf("order-%s-%s was due at %s and closed at %s, before the next beat", l[1], l[2], l[3], l[4])
		}
		if int(at) == int(due) {
			early[l[1]]++
		}
	}
	for round := range timers {
		for n := range batch {
			if id := fmt.Sprintf("%d-%d", round+1, n+1); closed[id] != 1 {
				t.Errorf("order-%s was closed %d times", id, closed[id])
			}
		}
	}
	if early["3"] == 0 {
		t.Errorf("without a timer too all waited for a beat: %s", text)
	}
}
