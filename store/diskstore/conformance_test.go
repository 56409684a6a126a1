package diskstore

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

// harness opens stores in memory that a crash takes the process from, but not
// what the operating system was given; TestPowerCut takes that too.
func harness(t testing.TB) *storetest.Instance {
	clock := storetest.NewClock()
	fs := vfs.NewCrashableMem()
	openOn := func(t testing.TB) *Store {
		s, err := Open("data", &Options{FS: fs, Now: clock.Now, Logger: quiet(), CacheBytes: 32 << 20, memTableBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := openOn(t)
	return &storetest.Instance{
		Store:   s,
		Advance: clock.Advance,
		Reopen: func(t testing.TB) store.Store {
			if !raceDetector {
				checkWhole(t, s)
			}
			old := s
			t.Cleanup(func() { _ = old.Close() })
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			s = openOn(t)
			if !raceDetector {
				checkWhole(t, s)
			}
			return s
		},
	}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: harness})
}
