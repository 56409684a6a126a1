package diskstore

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The write-ahead log knows two strengths of commit. A hard one is on the disk
// when it returns and outlives a power cut: Schedule, Cancel, Reschedule. A soft
// one has been handed to the operating system and outlives the end of this
// process, kill -9 included: Claim and Settle, whose loss in a power cut repeats
// a task but loses none.
//
// Pebble has hard commits, and commits that stay in its own buffer for a while,
// which is too soft: a handler that kills the process would leave no trace of
// its lease. So every commit asks Pebble to sync, and logFS leaves the fsync out
// while no hard commit is under way. A hard commit counts itself in hard before
// it is queued, until its sync has returned, so the sync that covers it is real.
//
// A log file that ends with left-out syncs is synced when it is closed: Pebble
// closes a log before it starts the next, and replays a log only if all before
// it are whole.
type logFS struct {
	vfs.FS
	hard atomic.Int64

	// full is set while a write waits for space on the disk.
	full atomic.Bool
	// closing ends such waiting.
	closing atomic.Bool
}

func (fs *logFS) isLog(category vfs.DiskWriteCategory) bool { return category == "pebble-wal" }

func (fs *logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.wrap(f, err, category)
}

func (fs *logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(f, err, category)
}

func (fs *logFS) wrap(f vfs.File, err error, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	w := &waitingFile{File: f, fs: fs}
	if fs.isLog(category) {
		return &logFile{waitingFile: w}, nil
	}
	return w, nil
}

// Unwrap lets Pebble find the file system beneath.
func (fs *logFS) Unwrap() vfs.FS { return fs.FS }

// waitingFile waits for space where the disk is full, rather than fail: Pebble
// can not go on after a failed write, and the operations that free space have to
// be written too. New tasks are refused in the meantime.
type waitingFile struct {
	vfs.File
	fs *logFS
}

func (f *waitingFile) Write(p []byte) (int, error) {
	done := 0
	for {
		n, err := f.File.Write(p[done:])
		done += n
		if err == nil || !errors.Is(err, syscall.ENOSPC) {
			if done > 0 && err == nil {
				f.fs.full.Store(false)
			}
			return done, err
		}
		if f.fs.closing.Load() {
			return done, err
		}
		f.fs.full.Store(true)
		time.Sleep(50 * time.Millisecond)
	}
}

// logFile is one log, written by one goroutine at a time.
type logFile struct {
	*waitingFile
	dirty atomic.Bool // written to and not synced since
}

func (f *logFile) Write(p []byte) (int, error) {
	f.dirty.Store(true)
	return f.waitingFile.Write(p)
}

func (f *logFile) Sync() error { return f.SyncData() }

func (f *logFile) SyncData() error {
	if f.fs.hard.Load() == 0 {
		return nil
	}
	return f.sync()
}

func (f *logFile) sync() error {
	f.dirty.Store(false)
	err := f.File.SyncData()
	if err != nil {
		f.dirty.Store(true)
	}
	return err
}

func (f *logFile) Close() error {
	var err error
	if f.dirty.Load() {
		err = f.sync()
	}
	return errors.Join(err, f.File.Close())
}
