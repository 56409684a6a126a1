package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEachArticleIsPublishedOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out, t.TempDir(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if want := "4 published, 0 left\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("ends with %q, want %q", out.String(), want)
	}
	lines := regexp.MustCompile(`(?m)^consumer-\d+ published article-(\d), "On being number (\d)", [0-9.]+(µs|ms|s) after its time$`).FindAllStringSubmatch(out.String(), -1)
	if len(lines) != articles {
		t.Fatalf("got %q", out.String())
	}
	seen := make(map[string]bool)
	for _, l := range lines {
		if seen[l[1]] || l[1] != l[2] {
			t.Errorf("got %q", out.String())
		}
		seen[l[1]] = true
	}
}
