package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

func TestTenThreadsRunEachOrderOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	redis := testserver.Redis(t, nil)
	var out bytes.Buffer
	if err := run(ctx, &out, "redis://"+redis.Addr); err != nil {
		t.Fatal(err)
	}
	if want := "1000 orders, 10 threads, 1000 runs, the last "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}
