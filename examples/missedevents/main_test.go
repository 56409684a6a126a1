package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

func TestWhatHappensWhileNobodyListensIsNotMissed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	redis := testserver.Redis(t, nil)
	var out bytes.Buffer // one handler at a time writes
	if err := run(ctx, &out, "redis://"+redis.Addr); err != nil {
		t.Fatal(err)
	}
	if want := "20 flats released, 20 runs\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("ends with %q, want %q", out.String(), want)
	}
	before, after, ok := strings.Cut(out.String(), "now nobody listens, for 600ms\n")
	if !ok {
		t.Fatalf("prints %q", out.String())
	}
	line := regexp.MustCompile(`(?m)^flat-(\d\d) released, ([0-9.]+[µm]?s) after its time$`)
	released := make(map[string]bool)
	for _, l := range line.FindAllStringSubmatch(out.String(), -1) {
		if released[l[1]] {
			t.Errorf("flat %s was released twice", l[1])
		}
		released[l[1]] = true
	}
	if len(released) != flats {
		t.Errorf("%d flats were released", len(released))
	}
	if n := len(line.FindAllString(before, -1)); n != 5 {
		t.Errorf("%d flats were released at first", n)
	}
	// The oldest of those that waited come first, and had to wait.
	waited := line.FindStringSubmatch(after)
	if late, err := time.ParseDuration(waited[2]); err != nil || waited[1] != fmt.Sprintf("%02d", 6) || late < step {
		t.Errorf("after the pause flat %s was released first, %v late", waited[1], late)
	}
}
