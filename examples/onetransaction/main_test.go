package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

func TestOrderAndTimeoutAreOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := testserver.MariaDB(t, nil)
	var out bytes.Buffer
	if err := run(ctx, &out, "mysql://root@"+m.Addr+"/"+m.Database); err != nil {
		t.Fatal(err)
	}
	const want = `order 0: placed true
order 1: placed false
order 2: placed true
order 0: not paid in time, cancelled
order 0 is cancelled
order 2 is paid
0 timeouts are left
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
