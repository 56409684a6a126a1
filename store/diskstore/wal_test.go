package diskstore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/duetime/duetime/store"
)

// A log whose writes are synced one by one grows ahead of them, and what lies
// there is no task, and no damage, to whoever opens it after a crash; a log that
// nobody syncs does not.
func TestLogGrowsAheadOfSyncs(t *testing.T) {
	const tasks = 100
	for _, durability := range []Durability{Always, Interval} {
		fs := vfs.NewCrashableMem()
		s, err := Open("data", &Options{FS: fs, Logger: quiet(), Durability: durability, SyncInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			schedule(t, s, store.NewTask{Queue: "q", ID: fmt.Sprint(i), Delay: time.Hour})
		}
		ahead := false
		names, err := fs.List("data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			info, err := fs.Stat("data/" + name)
			if err != nil {
				t.Fatal(err)
			}
			ahead = ahead || strings.HasSuffix(name, ".log") && info.Size() >= aheadBytes
		}
		if want := durability == Always; ahead != want {
			t.Errorf("durability %v: a log is ahead: %v, want %v", durability, ahead, want)
		}
		// kill -9, twice, the second time with two logs.
		for range 2 {
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
			again, err := Open("data", &Options{FS: fs, Logger: quiet(), Durability: durability, SyncInterval: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			stats, err := again.Stats(t.Context(), "q")
			if err != nil || stats.Scheduled != tasks {
				t.Errorf("durability %v: %+v, %v; want %d scheduled", durability, stats, err, tasks)
			}
			schedule(t, again, store.NewTask{Queue: "q", ID: "0", Delay: time.Hour}) // is there
			t.Cleanup(func() { _ = again.Close() })
		}
		_ = s.Close()
	}
}
