package main

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// buffer is safe for the handlers, which write at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func TestUnpaidOrdersAreCancelledOnceAndPaidOnesNever(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out buffer
	if err := run(ctx, &out, t.TempDir(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	text := out.b.String()
	if want := "150 cancelled, 50 paid\n"; !strings.HasSuffix(text, want) {
		t.Errorf("ends with %q, want %q", text[max(0, len(text)-200):], want)
	}
	seen := make(map[int]int)
	for _, m := range regexp.MustCompile(`(?m)^order (\d+) of buyer \d was not paid: cancelled, (-?)`).FindAllStringSubmatch(text, -1) {
		number, _ := strconv.Atoi(m[1])
		seen[number]++
		if m[2] != "" {
			t.Errorf("order %d was cancelled early", number)
		}
	}
	for number := range 200 {
		want := 1
		if number >= 100 && number%2 == 0 {
			want = 0
		}
		if seen[number] != want {
			t.Errorf("order %d was cancelled %d times, want %d", number, seen[number], want)
		}
	}
}
