// Package diskstore is duetime's embedded store: one process, one directory,
// nothing to install. It is built on Pebble, a log-structured merge tree.
//
//	st, err := diskstore.Open("/var/lib/myapp/tasks", nil)
//	client := duetime.NewClient(st, nil)
//
// Tasks wait on the disk, in order of due time; memory holds, for each queue, the
// position up to which everything has been handed out, and the leases that are
// out. So ten million tasks that are due in a year cost no memory, and opening
// takes as long with them as without.
//
// With the default durability, what Schedule, Cancel and Reschedule have
// returned survives a power cut; Claim and Settle survive the end of the process,
// however it ends, and a power cut may undo the last of them, so that a task is
// run again. Concurrent calls share their syncs.
//
// One process can have a directory open at a time. All methods are safe for use
// by any number of goroutines.
package diskstore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/duetime/duetime/store"
)

// Durability says when a scheduled task is on the disk.
type Durability uint8

const (
	// Always: before Schedule returns. It survives a power cut.
	Always Durability = iota
	// Interval: within Options.SyncInterval after Schedule has returned. A power
	// cut may lose what was scheduled in that time; the end of the process loses
	// nothing.
	Interval
)

// Options for Open. The zero value is right for nearly everyone.
type Options struct {
	Durability   Durability
	SyncInterval time.Duration // with Interval; default 100 ms

	MaxPayload int // bytes, up to 64 MiB; default store.MaxPayloadBytes (1 MiB)

	// MinFree is how many bytes of the disk are left alone: with less free, new
	// tasks are refused with store.ErrFull, while everything that ends tasks
	// still works. Default 128 MiB; negative: no check.
	MinFree int64

	// CacheBytes is the memory for what was written last and for what was read
	// from disk, together. Default 128 MiB.
	CacheBytes int64

	Logger *slog.Logger // default: slog.Default, warnings and errors only

	// For tests.
	FS  vfs.FS           // default: the operating system's
	Now func() time.Time // the store's clock; default time.Now

	memTableBytes uint64 // tests make log files short
}

// Store is an open directory.
type Store struct {
	dir        string
	db         *pebble.DB
	fs         *logFS
	lock       *dirLock
	log        *slog.Logger
	now        func() time.Time
	maxPayload int
	durability Durability
	space      *space
	setAside   atomic.Int64
	badFile    atomic.Pointer[string] // the last that a read found damaged

	ops    sync.RWMutex // held for reading by every call, for writing by Close
	closed bool
	failed atomic.Pointer[error]

	mu      sync.RWMutex
	queues  map[string]*queue
	lastNum uint32

	stop     chan struct{}
	stopped  sync.WaitGroup
	closeErr error
}

// formatVersion is of the key space, see keys.go.
const formatVersion = "1"

// Open opens the store in a directory, creating it if need be. A directory that
// another store has open is store.ErrInUse, with the process that has it.
func Open(dir string, opts *Options) (_ *Store, err error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.SyncInterval <= 0 {
		o.SyncInterval = 100 * time.Millisecond
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = store.MaxPayloadBytes
	}
	if o.MaxPayload < 1 || o.MaxPayload > 64<<20 {
		return nil, store.NewInputError("max_payload", o.MaxPayload, "must be 1 to %d bytes", 64<<20)
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = 128 << 20
	}
	if o.MinFree == 0 {
		o.MinFree = 128 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.memTableBytes == 0 {
		o.memTableBytes = 16 << 20
	}
	s := &Store{
		dir: dir, log: o.Logger, now: o.Now, maxPayload: o.MaxPayload, durability: o.Durability,
		queues: make(map[string]*queue), stop: make(chan struct{}),
	}
	under := o.FS
	if under == nil {
		under = vfs.Default
		if s.dir, err = filepath.Abs(dir); err != nil {
			return nil, fmt.Errorf("open store %s: %w", dir, err)
		}
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return nil, fmt.Errorf("open store %s: can not make the directory: %w", s.dir, err)
		}
		if s.lock, err = lockDir(s.dir); err != nil {
			return nil, fmt.Errorf("open store %s: %w", s.dir, err)
		}
		defer func() {
			if err != nil {
				s.lock.release()
			}
		}()
	}
	s.fs = newLogFS(under)
	s.fs.private = o.FS == nil
	s.fs.hasty.Store(true)
	s.space = newSpace(under, s.dir, o.MinFree, &s.fs.full)
	if err := s.space.checkOpen(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", s.dir, err)
	}
	cache := pebble.NewCache(o.CacheBytes)
	defer cache.Unref()
	if err := s.openPebble(pebbleOptions(s, &o, cache)); err != nil {
		return nil, fmt.Errorf("open store %s: %w", s.dir, s.damage(err))
	}
	if err := s.load(); err != nil {
		_ = s.db.Close()
		return nil, fmt.Errorf("open store %s: %w", s.dir, s.damage(err))
	}
	s.fs.hasty.Store(false)
	if s.durability == Interval {
		s.stopped.Go(func() { s.syncLoop(o.SyncInterval) })
	}
	return s, nil
}

// load reads the queues.
func (s *Store) load() error {
	value, closer, err := s.db.Get([]byte{kindMeta})
	switch {
	case err == pebble.ErrNotFound:
		b := s.db.NewBatch()
		_ = b.Set([]byte{kindMeta}, []byte(formatVersion), nil)
		return s.commit(b)
	case err != nil:
		return err
	}
	version := string(value)
	closer.Close()
	if version != formatVersion {
		return fmt.Errorf("its format is version %q, this program knows version %q", version, formatVersion)
	}
	lower, upper := kindBounds(kindQueue)
	it, err := s.db.NewIter(iterBounds(lower, upper))
	if err != nil {
		return err
	}
	defer it.Close()
	for valid := it.First(); valid; valid = it.Next() {
		q, err := s.readQueue(string(it.Key()[1:]), it.Value())
		if err != nil {
			return err
		}
		if err := q.load(); err != nil {
			return err
		}
		s.queues[q.name] = q
		s.lastNum = max(s.lastNum, q.num)
	}
	return it.Error()
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.ops.Lock()
	defer s.ops.Unlock()
	if s.closed {
		return s.closeErr
	}
	s.closed = true
	close(s.stop)
	s.stopped.Wait()
	s.fs.hasty.Store(true)
	if s.failed.Load() == nil {
		if err := s.sync(); err != nil {
			s.closeErr = err
		}
	}
	if err := s.db.Close(); err != nil && s.closeErr == nil {
		s.closeErr = fmt.Errorf("close store %s: %w", s.dir, err)
	}
	if s.lock != nil {
		s.lock.release()
	}
	return s.closeErr
}

// enter begins a call; the caller defers s.ops.RUnlock if it returns nil.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.ops.RLock()
	if s.closed {
		s.ops.RUnlock()
		return store.ErrClosed
	}
	if err := s.failed.Load(); err != nil {
		s.ops.RUnlock()
		return *err
	}
	return nil
}

// begin applies a batch and starts its way into the log; written waits until the
// operating system has it. Every begin that returns nil is followed by written.
func (s *Store) begin(b *pebble.Batch) error {
	if err := s.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return s.broken(err)
	}
	return nil
}

func (s *Store) written(b *pebble.Batch) error {
	if err := b.SyncWait(); err != nil {
		return s.broken(err)
	}
	_ = b.Close()
	return nil
}

// commit writes a batch that is not part of a change.
func (s *Store) commit(b *pebble.Batch) error {
	if err := s.begin(b); err != nil {
		return err
	}
	if err := s.written(b); err != nil {
		return err
	}
	return s.durable()
}

// durable waits until what was written is on the disk.
func (s *Store) durable() error {
	if err := s.fs.sync(); err != nil {
		return s.broken(err)
	}
	return nil
}

// promised is the strength of what must be kept.
func (s *Store) promised() strength { return strength(s.durability == Always) }

// sync makes everything that was applied durable, also what other calls have not
// yet seen written.
func (s *Store) sync() error {
	b := s.db.NewBatch()
	_ = b.LogData([]byte{0}, nil)
	return s.commit(b)
}

func (s *Store) syncLoop(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			if err := s.sync(); err != nil {
				return // broken has said so, and every call says it from now on
			}
		}
	}
}

// broken notes that the store can not go on: memory and disk may differ after a
// failed write, so that only opening it again tells what is there.
func (s *Store) broken(err error) error {
	err = fmt.Errorf("store %s: %w", s.dir, err)
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error("the store can not go on and must be opened again", "dir", s.dir, "err", err)
	}
	return err
}

// SetAside is how many damaged records were set aside since the store was
// opened.
func (s *Store) SetAside() int64 { return s.setAside.Load() }

// DiskBytes is how much of the disk the store uses, about.
func (s *Store) DiskBytes() uint64 {
	s.ops.RLock()
	defer s.ops.RUnlock()
	if s.closed {
		return 0
	}
	return s.db.Metrics().DiskSpaceUsage()
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	durability := "on this machine's disk before Schedule returns"
	if s.durability == Interval {
		durability = "with the operating system when Schedule returns, on the disk a moment later"
	}
	return store.Capabilities{
		Name: "disk", Durability: durability, MaxPayload: s.maxPayload,
		Cancel: true, Reschedule: true, Get: true, List: true, UniqueIDs: true,
		Settings: true, Release: true, Redrive: true, Purge: true,
	}
}
