package diskstore

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/duetime/duetime/store"
)

// space keeps an eye on the disk, so that new tasks are refused while there is
// still room for everything that ends tasks.
type space struct {
	fs      vfs.FS
	dir     string
	minFree int64
	full    *atomic.Bool // a write is waiting for space
	checked atomic.Int64 // when, nanoseconds
	free    atomic.Int64
}

const spaceEvery = 100 * time.Millisecond

func newSpace(fs vfs.FS, dir string, minFree int64, full *atomic.Bool) *space {
	s := &space{fs: fs, dir: dir, minFree: minFree, full: full}
	s.free.Store(1 << 62) // until it is known
	return s
}

// minOpen is what it takes to read the log back in and write it where it
// belongs, about.
const minOpen = 32 << 20

// checkOpen returns an error that wraps store.ErrFull where there is too little to
// open the store.
func (s *space) checkOpen() error {
	if s.minFree < 0 {
		return nil
	}
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil || usage.AvailBytes >= minOpen {
		return nil
	}
	return fmt.Errorf("%w: the disk of %s has %d MiB free, opening it needs %d MiB",
		store.ErrFull, s.dir, usage.AvailBytes>>20, minOpen>>20)
}

// check returns an error that wraps store.ErrFull where there is too little.
func (s *space) check() error {
	if s.minFree < 0 {
		return nil
	}
	now := time.Now().UnixNano()
	if last := s.checked.Load(); (last == 0 || now-last >= int64(spaceEvery) || now < last) && s.checked.CompareAndSwap(last, now) {
		if usage, err := s.fs.GetDiskUsage(s.dir); err == nil {
			s.free.Store(int64(min(usage.AvailBytes, 1<<62)))
		} else {
			s.free.Store(1 << 62) // a file system that can not tell
		}
	}
	if free := s.free.Load(); free < s.minFree || s.full.Load() {
		return fmt.Errorf("%w: the disk of %s has %d MiB free, new tasks need %d MiB",
			store.ErrFull, s.dir, free>>20, s.minFree>>20)
	}
	return nil
}
