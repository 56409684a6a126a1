package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

func TestNothingIsMissedOrRunTwice(t *testing.T) {
	testserver.Need(t, "mariadb")
	testserver.Need(t, "redis-server")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, end, err := start("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var out bytes.Buffer
	if err := run(ctx, &out, s); err != nil {
		t.Fatal(err)
	}
	if want := "150 ran, 0 of them twice, 0 after they were cancelled; 1000 are for next month\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
