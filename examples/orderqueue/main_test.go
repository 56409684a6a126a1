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

func TestEachOrderIsCancelledOldestFirst(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	redis := testserver.Redis(t, nil)
	var out bytes.Buffer // the handlers write under a lock
	if err := run(ctx, &out, "redis://"+redis.Addr); err != nil {
		t.Fatal(err)
	}
	if want := "150 orders cancelled\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("ends with %q, want %q", out.String()[max(0, out.Len()-200):], want)
	}
	place := make(map[string]int)
	lines := regexp.MustCompile(`(?m)^(order-\d+) of buyer \d cancelled, attempt (\d), [0-9.]+[µm0-9.]*s after its time$`).FindAllStringSubmatch(out.String(), -1)
	for i, l := range lines {
		if _, ok := place[l[1]]; ok {
			t.Errorf("%s was cancelled twice", l[1])
		}
		place[l[1]] = i
		want := "1"
		if l[1] < fmt.Sprintf("order-%03d", lost) { // the oldest were in the dead worker's hands
			want = "2"
		}
		if l[2] != want {
			t.Errorf("%s was cancelled in attempt %s, want %s", l[1], l[2], want)
		}
	}
	if len(lines) != overdue+soon {
		t.Fatalf("%d orders were cancelled: %s", len(lines), out.String())
	}
	// Eight hands start what they got in any order; nothing else may overtake.
	for n := lost; n < overdue; n++ {
		if at := place[fmt.Sprintf("order-%03d", n)]; at > n-lost+2*pool || at < n-lost-2*pool {
			t.Errorf("order %d was the %dth to be cancelled", n, at)
		}
	}
}
