package main

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

func TestEachReminderIsSentOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	redis := testserver.Redis(t, nil)
	var out bytes.Buffer // the handlers write under a lock
	if err := run(ctx, &out, "redis://"+redis.Addr, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if want := "4 reminders sent by 10 consumers\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("ends with %q, want %q", out.String(), want)
	}
	if n := len(regexp.MustCompile(`(?m)^consumer-\d+ failed with reminder-2, which comes back$`).FindAllString(out.String(), -1)); n != 1 {
		t.Errorf("reminder-2 failed %d times: %s", n, out.String())
	}
	var got []string
	for _, l := range regexp.MustCompile(`(?m)^consumer-\d+ sent reminder-(\d), "pay order (\d)", attempt (\d), [0-9.]+(µs|ms|s) after its time$`).FindAllStringSubmatch(out.String(), -1) {
		got = append(got, strings.Join(l[1:4], " "))
	}
	slices.Sort(got) // on a slow machine one may overtake that came back
	if want := []string{"1 1 1", "2 2 2", "3 3 1", "4 4 1"}; !slices.Equal(got, want) {
		t.Errorf("sent (reminder, order, attempt) %q, want %q: %s", got, want, out.String())
	}
}
