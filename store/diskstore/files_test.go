package diskstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/duetime/duetime/store"
)

func open(t *testing.T, dir string, opts *Options) *Store {
	t.Helper()
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = quiet()
	}
	s, err := Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func schedule(t *testing.T, s *Store, tasks ...store.NewTask) []store.Result {
	t.Helper()
	res, err := s.Schedule(context.Background(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func claim(t *testing.T, s *Store, queue string, n int) []store.Lease {
	t.Helper()
	res, err := s.Claim(context.Background(), []store.ClaimRequest{{Queue: queue, Max: n, Lease: time.Minute}})
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	return res[0].Tasks
}

func TestDirectoryInUseNamesTheProcess(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, nil)
	_, err := Open(dir, nil)
	if !errors.Is(err, store.ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
	for _, want := range []string{dir, "in use by this process itself", "since "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, nil)
}

func TestUnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/duetime-can-not-be-here"} {
		_, err := Open(dir, nil)
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v does not name it", dir, err)
		}
	}
}

func TestClosedStoreSaysSo(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Queues(context.Background()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestOtherFormatVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	if err := s.db.Set([]byte{kindMeta}, []byte("99"), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, &Options{Logger: quiet()})
	if err == nil || !strings.Contains(err.Error(), `version "99"`) {
		t.Errorf("got %v", err)
	}
}

// corruptFiles flips bytes all over the files with an ending.
func corruptFiles(t *testing.T, dir, ending string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil || len(files) == 0 {
		t.Fatal("no files to damage", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < 1000 {
			continue
		}
		for i := 10; i < len(b)*9/10; i += 50 {
			b[i] ^= 0x55
		}
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimSuffix(filepath.Base(f), ending))
	}
	return names
}

func TestDamagedFileIsNamed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	var tasks []store.NewTask
	for i := range 2000 {
		tasks = append(tasks, store.NewTask{Queue: "q", ID: string(rune('a'+i%26)) + strings.Repeat("x", i/26), Payload: make([]byte, 50)})
	}
	schedule(t, s, tasks...)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names := corruptFiles(t, dir, ".sst")
	check := func() {
		t.Helper()
		s, err := Open(dir, &Options{Logger: quiet()})
		if err == nil {
			_, err = s.Claim(context.Background(), []store.ClaimRequest{{Queue: "q", Max: 1}})
			defer s.Close()
		}
		if !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("got %v, want ErrCorrupt", err)
		}
		named := false
		for _, name := range names {
			named = named || strings.Contains(err.Error(), name)
		}
		if !named || !strings.Contains(err.Error(), dir) {
			t.Errorf("%q does not name %s and one of %v", err, dir, names)
		}
		if n := len(err.Error()); n > 500 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is more than a line", err)
		}
	}
	check()
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, name+".sst")); err != nil {
			t.Fatal(err)
		}
	}
	check()
}

func TestFilesAreNobodyElses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, nil)
	schedule(t, s, store.NewTask{Queue: "q", ID: "1"})
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 && info.Size() > 0 {
			t.Errorf("%s is %v", f.Name(), info.Mode())
		}
	}
}

func TestOpenOnAFullDiskSaysSo(t *testing.T) {
	fs := &fullFS{FS: vfs.NewCrashableMem()}
	fs.avail.Store(1 << 20)
	_, err := Open("data", &Options{FS: fs, Logger: quiet()})
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "1 MiB free") || !strings.Contains(err.Error(), "needs 32 MiB") {
		t.Errorf("got %v, want ErrFull", err)
	}
	// Where nobody can tell how much there is, the first write that fails does.
	fs.avail.Store(1 << 40)
	fs.full.Store(true)
	if _, err := Open("data", &Options{FS: fs, Logger: quiet()}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
}

func TestDamagedRecordIsSetAsideAndBlocksNothing(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	base := time.Now().Add(-time.Hour)
	var tasks []store.NewTask
	for i := range 100 {
		tasks = append(tasks, store.NewTask{Queue: "q", ID: fmt.Sprint(i), Due: base.Add(time.Duration(i) * time.Second)})
	}
	schedule(t, s, tasks...)
	q := s.queue("q")
	f := finder{q: q}
	bad, _, err := f.find("0")
	f.reset()
	if err != nil {
		t.Fatal(err)
	}
	gone, _, _ := f.find("10")
	f.reset()
	key := appendPosKey(nil, kindTask, q.num, bad.pos)
	if err := s.db.Set(key, []byte("this is no record"), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Delete(appendPosKey(nil, kindTask, q.num, gone.pos), nil); err != nil {
		t.Fatal(err)
	}
	if res, err := s.Get(context.Background(), []store.Key{{Queue: "q", ID: "0"}, {Queue: "q", ID: "1"}}); err != nil {
		t.Fatal(err)
	} else if !errors.Is(res[0].Err, store.ErrCorrupt) || res[1].Outcome != store.Found {
		t.Errorf("got %+v", res)
	}
	if got := len(claim(t, s, "q", 1000)); got != 98 {
		t.Errorf("%d tasks were handed out, want 98", got)
	}
	if got := s.SetAside(); got != 1 {
		t.Errorf("%d records set aside, want 1", got)
	}
	// Its id is free again, and so is that of the one whose record is gone.
	for i, r := range schedule(t, s, store.NewTask{Queue: "q", ID: "0"}, store.NewTask{Queue: "q", ID: "10"}) {
		if r.Outcome != store.Created {
			t.Errorf("%d: %v", i, r)
		}
	}
	if got := len(claim(t, s, "q", 1000)); got != 2 {
		t.Errorf("%d tasks were handed out, want 2", got)
	}
}

// fullFS is a disk that can be full.
type fullFS struct {
	vfs.FS
	avail atomic.Uint64
	full  atomic.Bool
}

func (fs *fullFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: fs.avail.Load(), TotalBytes: 1 << 40}, nil
}

func (fs *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return &fullFile{f, fs}, nil
}

type fullFile struct {
	vfs.File
	fs *fullFS
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.fs.full.Load() {
		n := len(p) / 2
		if n > 0 {
			n, _ = f.File.Write(p[:n])
		}
		return n, &os.PathError{Op: "write", Err: syscall.ENOSPC}
	}
	return f.File.Write(p)
}

func TestFullDiskRefusesNewTasksAndEndsOldOnes(t *testing.T) {
	fs := &fullFS{FS: vfs.NewCrashableMem()}
	fs.avail.Store(1 << 40)
	s := open(t, "data", &Options{FS: fs})
	schedule(t, s, store.NewTask{Queue: "q", ID: "1"}, store.NewTask{Queue: "q", ID: "2"}, store.NewTask{Queue: "q", ID: "3"})
	fs.avail.Store(1 << 20)
	s.space.checked.Store(0)
	res := schedule(t, s, store.NewTask{Queue: "q", ID: "4"})
	if !errors.Is(res[0].Err, store.ErrFull) || res[0].Outcome != store.Refused {
		t.Fatalf("got %+v, want ErrFull", res[0])
	}
	for _, want := range []string{"1 MiB free", "128 MiB", "data"} {
		if !strings.Contains(res[0].Err.Error(), want) {
			t.Errorf("%q does not say %q", res[0].Err, want)
		}
	}
	leases := claim(t, s, "q", 2)
	if r, err := s.Settle(context.Background(), []store.Settlement{{Receipt: leases[0].Receipt, Action: store.Ack}}); err != nil || r[0].Outcome != store.Acked {
		t.Errorf("ack: %v %v", r, err)
	}
	if r, err := s.Cancel(context.Background(), []store.CancelRequest{{Queue: "q", ID: "3"}}); err != nil || r[0].Outcome != store.Cancelled {
		t.Errorf("cancel: %v %v", r, err)
	}
	fs.avail.Store(1 << 40)
	s.space.checked.Store(0)
	if res := schedule(t, s, store.NewTask{Queue: "q", ID: "4"}); res[0].Outcome != store.Created {
		t.Errorf("with room again: %+v", res[0])
	}
	checkWhole(t, s)
}

// A write that meets a full disk all the same waits for room, in the middle of a
// record if need be, and nothing is lost.
func TestWriteWaitsForRoom(t *testing.T) {
	mem := vfs.NewCrashableMem()
	fs := &fullFS{FS: mem}
	fs.avail.Store(1 << 40)
	s := open(t, "data", &Options{FS: fs})
	schedule(t, s, store.NewTask{Queue: "q", ID: "before"})
	fs.full.Store(true)
	done := make(chan error, 1)
	go func() {
		res, err := s.Schedule(context.Background(), []store.NewTask{{Queue: "q", ID: "during", Payload: make([]byte, 5000)}})
		if err == nil && res[0].Outcome != store.Created {
			err = errors.New(res[0].Outcome.String())
		}
		done <- err
	}()
	for !s.fs.full.Load() {
		select {
		case err := <-done:
			t.Fatal("returned with the disk full:", err)
		case <-time.After(time.Millisecond):
		}
	}
	if res := schedule(t, s, store.NewTask{Queue: "q", ID: "refused"}); !errors.Is(res[0].Err, store.ErrFull) {
		t.Errorf("got %+v, want ErrFull", res[0])
	}
	fs.full.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	again := open(t, "data", &Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if got := len(claim(t, again, "q", 10)); got != 2 {
		t.Errorf("%d tasks after the power cut, want 2", got)
	}
}

// failFS is a disk whose syncs fail once it is broken.
type failFS struct {
	vfs.FS
	broken atomic.Bool
}

func (fs *failFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return &failFile{f, fs}, nil
}

type failFile struct {
	vfs.File
	fs *failFS
}

func (f *failFile) SyncData() error {
	if f.fs.broken.Load() {
		return &os.PathError{Op: "fdatasync", Path: "log", Err: syscall.EIO}
	}
	return f.File.SyncData()
}

// After a sync that failed nobody knows what is on the disk: the call says so,
// and all later ones do, until the store is opened again.
func TestFailedSyncIsTheEnd(t *testing.T) {
	mem := vfs.NewCrashableMem()
	fs := &failFS{FS: mem}
	s := open(t, "data", &Options{FS: fs, MinFree: -1})
	schedule(t, s, store.NewTask{Queue: "q", ID: "before"})
	fs.broken.Store(true)
	ctx := context.Background()
	for range 2 {
		_, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: "after"}})
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "data") {
			t.Fatalf("got %v, want one that names the store and the fault", err)
		}
	}
	if _, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 1}}); !errors.Is(err, syscall.EIO) {
		t.Errorf("claim: %v", err)
	}
	again := open(t, "data", &Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if leases := claim(t, again, "q", 10); len(leases) != 1 || leases[0].ID != "before" {
		t.Errorf("got %d tasks", len(leases))
	}
}

// More tasks than the early set holds, due before the cursor, in random order.
func TestManyLateInsertsKeepTheOrder(t *testing.T) {
	if raceDetector {
		t.Skip("heavy: one goroutine, and run without the race detector")
	}
	s := open(t, t.TempDir(), nil)
	schedule(t, s, store.NewTask{Queue: "q", ID: "now"})
	claim(t, s, "q", 1) // the cursor is at now
	base := time.Now().Add(-24 * time.Hour)
	const n = earlyMax + 5000
	var tasks []store.NewTask
	for i := range n {
		due := base.Add(time.Duration((i*7919)%n) * time.Millisecond)
		tasks = append(tasks, store.NewTask{Queue: "q", ID: due.Format(time.RFC3339Nano), Due: due})
		if len(tasks) == store.MaxBatch || i == n-1 {
			schedule(t, s, tasks...)
			tasks = tasks[:0]
		}
	}
	st, err := s.Stats(context.Background(), "q")
	if err != nil || st.Ready != n || st.Leased != 1 {
		t.Fatalf("stats %+v, %v", st, err)
	}
	last, got := time.Time{}, 0
	for {
		leases := claim(t, s, "q", store.MaxBatch)
		if len(leases) == 0 {
			break
		}
		for _, l := range leases {
			if l.Due.Before(last) {
				t.Fatalf("%v after %v", l.Due, last)
			}
			last = l.Due
		}
		got += len(leases)
	}
	if got != n {
		t.Errorf("%d handed out, want %d", got, n)
	}
}
