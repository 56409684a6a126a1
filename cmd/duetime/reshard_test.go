package main

import (
	"strings"
	"testing"

	"github.com/duetime/duetime/internal/testserver"
)

func TestReshardCommand(t *testing.T) {
	r := testserver.Redis(t, nil)
	t.Setenv("DUETIME_STORE", "redis://"+r.Addr)
	duetime := func(status int, words string, args ...string) {
		t.Helper()
		var out, errs strings.Builder
		if got := run(t.Context(), append([]string{"duetime"}, args...), strings.NewReader(""), &out, &errs); got != status || !strings.Contains(out.String()+errs.String(), words) {
			t.Fatalf("%v: status %d, %s%s; want %d and %q", args, got, out.String(), errs.String(), status, words)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		duetime(0, "", "schedule", "orders", "--id", id, "--in", "1h", "x")
	}
	duetime(0, "queue orders has 4 shards; 3 tasks moved", "reshard", "orders", "4")
	duetime(0, "queue orders has 4 shards; 0 tasks moved", "reshard", "orders", "4")
	duetime(0, `{"queue":"orders","shards":1,"moved":3}`, "--json", "reshard", "orders", "1")
	duetime(0, "a", "get", "orders", "a")
	duetime(2, "must be a number of shards", "reshard", "orders", "many")
	duetime(2, "must be 1 to 1024", "reshard", "orders", "5000")
	duetime(2, "does not exist", "reshard", "ordesr", "4")
	duetime(2, "has no shards", "--store", "embedded:"+t.TempDir(), "reshard", "orders", "4")
}
