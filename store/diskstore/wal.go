package diskstore

import (
	"errors"
	"os"
	"sync"
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
// its lease. So every commit asks Pebble to sync, and the log's Sync does
// nothing: when it returns, the record has been written. A hard commit then waits
// for logFS.sync. Pebble's one goroutine that writes the log is so never busy with
// a sync, behind which the lease of a task that is due now would have to wait.
//
// A log file that has not been synced to its end is synced when it is closed:
// Pebble closes a log before it starts the next, and replays a log only if all
// before it are whole.
type logFS struct {
	vfs.FS

	// full is set while a write waits for space on the disk.
	full atomic.Bool
	// hasty writes do not wait for it but fail: while the store is being opened
	// or closed, when nobody could free any.
	hasty atomic.Bool
	// private makes the files unreadable for other users, whatever the directory.
	private bool

	mu       sync.Mutex
	ended    sync.Cond // a sync has ended; on mu
	logs     map[*logFile]struct{}
	syncing  bool
	started  uint64 // syncs
	finished uint64
	err      error // of the first sync that failed; all later ones fail too
}

func newLogFS(fs vfs.FS) *logFS {
	l := &logFS{FS: fs, logs: make(map[*logFile]struct{})}
	l.ended.L = &l.mu
	return l
}

// sync makes durable what was written to the logs before it was called. Calls at
// the same time share one fsync: while one is under way, the next collects.
func (fs *logFS) sync() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for want := fs.started + 1; fs.finished < want && fs.err == nil; {
		if fs.syncing {
			fs.ended.Wait()
			continue
		}
		fs.syncing = true
		fs.started++
		files := make([]*logFile, 0, len(fs.logs))
		for f := range fs.logs {
			files = append(files, f)
		}
		fs.mu.Unlock()
		var err error
		for _, f := range files {
			err = errors.Join(err, f.sync())
		}
		fs.mu.Lock()
		fs.syncing = false
		fs.finished = fs.started
		if err != nil && fs.err == nil {
			fs.err = err
		}
		fs.ended.Broadcast()
	}
	return fs.err
}

func (fs *logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err == nil && fs.private {
		err = os.Chmod(name, 0o600)
	}
	return fs.wrap(f, err, category)
}

func (fs *logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(f, err, category)
}

func (fs *logFS) wrap(f vfs.File, err error, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		return nil, err
	}
	w := &waitingFile{File: f, fs: fs}
	if category != "pebble-wal" {
		return w, nil
	}
	log := &logFile{waitingFile: w}
	if info, err := f.Stat(); err == nil {
		log.whole = info.Size() // not zero where an old log is used again
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.logs[log] = struct{}{}
	return log, nil
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
		if err == nil {
			f.fs.full.Store(false)
			return done, nil
		}
		if !errors.Is(err, syscall.ENOSPC) || f.fs.hasty.Load() {
			return done, err
		}
		f.fs.full.Store(true)
		time.Sleep(50 * time.Millisecond)
	}
}

// logFile is one log. One goroutine writes to it and closes it, others sync it.
//
// A file that grows with each write is dear to sync: the file system has to
// commit its new size as well, which takes about as long again as the data. So
// where syncs are frequent the file grows ahead in steps of zeros, and what is
// written in between lies over them. To whoever reads the log after a crash zeros are
// its end, just as the old content of a log that is used again is.
type logFile struct {
	*waitingFile
	dirty atomic.Bool  // written to, and no sync has begun since
	syncs atomic.Int64 // since it last grew ahead

	// The writer's.
	end   int64 // of what was written
	whole int64 // up to here there is something to write over

	syncMu sync.Mutex
	closed bool
}

const (
	// aheadBytes is how much a log grows ahead.
	aheadBytes = 256 << 10
	// aheadSyncs is how many syncs make it worth it.
	aheadSyncs = 4
)

var zeros [64 << 10]byte

// grow makes room ahead. Where that fails, the write that follows says why.
func (f *logFile) grow(n int) {
	if f.end+int64(n) <= f.whole || f.syncs.Load() < aheadSyncs {
		return
	}
	f.syncs.Store(0)
	f.whole = max(f.whole, f.end)
	for to := f.whole + aheadBytes; f.whole < to; {
		n, err := f.File.WriteAt(zeros[:], f.whole)
		f.whole += int64(n)
		if err != nil {
			return
		}
	}
}

func (f *logFile) Write(p []byte) (int, error) {
	f.grow(len(p))
	n, err := f.waitingFile.Write(p)
	f.end += int64(n)
	// Not before: a sync that began in between would take the mark away, and what
	// it did not see would pass for synced.
	f.dirty.Store(true)
	return n, err
}

func (f *logFile) Sync() error     { return nil }
func (f *logFile) SyncData() error { return nil }

// sync makes durable what was written before; what a closed file has was made so
// when it was closed.
func (f *logFile) sync() error {
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	if f.closed {
		return nil
	}
	return f.syncLocked()
}

func (f *logFile) syncLocked() error {
	if !f.dirty.Swap(false) {
		return nil
	}
	f.syncs.Add(1)
	err := f.File.SyncData()
	if err != nil {
		f.dirty.Store(true)
	}
	return err
}

func (f *logFile) Close() error {
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	err := f.syncLocked()
	f.closed = true
	f.fs.mu.Lock()
	delete(f.fs.logs, f)
	f.fs.mu.Unlock()
	return errors.Join(err, f.File.Close())
}
