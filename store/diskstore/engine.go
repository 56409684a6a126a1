package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/duetime/duetime/store"
)

// openPebble opens the engine. What it takes for fatal is only an error here,
// where nothing has been promised to anybody yet.
func (s *Store) openPebble(o *pebble.Options) (err error) {
	defer func() {
		if r := recover(); r != nil {
			fatal, ok := r.(fatalError)
			if !ok {
				panic(r)
			}
			err = fatal
		}
	}()
	s.db, err = pebble.Open(s.dir, o)
	return err
}

func pebbleOptions(s *Store, o *Options, cache *pebble.Cache) *pebble.Options {
	po := &pebble.Options{
		FS:    s.fs,
		Cache: cache,
		// A later format writes into the log how far it was synced, and Pebble
		// does not know that; see logFS.
		FormatMajorVersion:          pebble.FormatColumnarBlocks,
		MemTableSize:                o.memTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       100,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                500,
		Logger:                      pebbleLogger{s},
		EventListener:               &pebble.EventListener{BackgroundError: s.backgroundError, DataCorruption: s.corruption},
	}
	po.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	for i := range po.Levels {
		po.Levels[i].BlockSize = 16 << 10
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return po
}

func iterBounds(lower, upper []byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: lower, UpperBound: upper}
}

func (s *Store) backgroundError(err error) {
	if !errors.Is(err, pebble.ErrClosed) {
		s.log.Error("disk store: background work failed, will be tried again", "dir", s.dir, "err", err)
	}
}

// corruption is told of each read that met damage. Without it Pebble ends the
// process; the call that read gets the error too.
func (s *Store) corruption(info pebble.DataCorruptionInfo) {
	s.badFile.Store(&info.Path)
	s.log.Error("disk store: damaged file", "file", info.Path, "err", oneLine{info.Details}.Error())
}

// pebbleLogger passes on what matters. Fatalf is called where Pebble's own state
// on disk can not be written; it must not return.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(string, ...any) {}
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.log.Warn("disk store: "+fmt.Sprintf(format, args...), "dir", l.s.dir)
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	fatal := fatalError{text: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			fatal.cause = err
		}
	}
	_ = l.s.broken(fatal)
	panic(fatal)
}

// fatalError ends the process where the store can not go on and no caller can be
// told.
type fatalError struct {
	text  string
	cause error
}

func (e fatalError) Error() string { return "duetime: disk store: " + e.text }
func (e fatalError) Unwrap() error { return e.cause }

// readFailed is for a read that Pebble could not do: a damaged or missing file.
// What is in memory is not in doubt, so that the rest of the store goes on.
func (s *Store) readFailed(err error) error {
	return fmt.Errorf("store %s: read: %w", s.dir, s.damage(err))
}

// damage makes an error that comes of a damaged or missing file store.ErrCorrupt,
// and has it name the file.
func (s *Store) damage(err error) error {
	if !pebble.IsCorruptionError(err) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if file := s.badFile.Load(); file != nil {
		return fmt.Errorf("%w: %s: %w", store.ErrCorrupt, *file, oneLine{err})
	}
	return fmt.Errorf("%w: %w", store.ErrCorrupt, oneLine{err})
}

// oneLine leaves out what Pebble has to say to its own developers.
type oneLine struct{ error }

func (e oneLine) Error() string {
	first, _, _ := strings.Cut(e.error.Error(), "\n")
	return strings.TrimSuffix(first, ";")
}

func (e oneLine) Unwrap() error { return e.error }
