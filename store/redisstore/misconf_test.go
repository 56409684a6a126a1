package redisstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// After a snapshot that failed Redis takes no writes. That is said as it is, and
// is over with the next that succeeds.
func TestFailedSnapshot(t *testing.T) {
	server := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--save", "3600 1000000"}})
	s := open(t, Options{Addrs: []string{server.Addr}})
	ctx := context.Background()
	schedule := func(id string) ([]store.Result, error) {
		return s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: id}})
	}
	if _, err := schedule("a"); err != nil {
		t.Fatal(err)
	}
	snapshot := func(want string) {
		t.Helper()
		if _, err := server.Do("BGSAVE"); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			i, err := server.Info("persistence")
			if err != nil {
				t.Fatal(err)
			}
			if i["rdb_bgsave_in_progress"] == "0" && i["rdb_last_bgsave_status"] == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the snapshot did not end with %s", want)
	}
	blocker := filepath.Join(server.Dir(), "dump.rdb") // a file can not take a folder's name
	if err := os.Mkdir(blocker, 0o755); err != nil {
		t.Fatal(err)
	}
	snapshot("err")
	if r, err := schedule("b"); err == nil || !strings.Contains(err.Error(), "MISCONF") || errors.Is(err, store.ErrFull) {
		t.Errorf("schedule: %v, %v", r, err)
	}
	if _, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "q", ID: "a"}}); err == nil || !strings.Contains(err.Error(), "MISCONF") {
		t.Errorf("cancel: %v", err)
	}
	if r, err := s.Get(ctx, []store.Key{{Queue: "q", ID: "a"}}); err != nil || r[0].Outcome != store.Found {
		t.Errorf("get: %v, %v", r, err)
	}
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	snapshot("ok")
	if r, err := schedule("b"); err != nil || r[0].Outcome != store.Created {
		t.Errorf("schedule: %v, %v", r, err)
	}
	checkWhole(t, s)
}
