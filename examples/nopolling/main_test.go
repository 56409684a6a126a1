package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

func TestUnpaidOrdersAreCancelledInTheTable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := testserver.MariaDB(t, nil)
	var out bytes.Buffer
	if err := run(ctx, &out, "mysql://root@"+m.Addr+"/"+m.Database); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if !strings.HasPrefix(out.String(), "100 cancelled\n100 paid\nafter their time: ") {
		t.Errorf("%q", out.String())
	}
}
