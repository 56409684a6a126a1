package diskstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// dirLock keeps a directory to one open store. The file says who has it, for the
// message that the next one gets; the lock itself is the operating system's and
// ends with the process.
type dirLock struct{ f *os.File }

const lockName = "duetime.lock"

func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the directory can not be written to: %w", err)
	}
	if err := lockFile(f); err != nil {
		holder, _ := os.ReadFile(path)
		f.Close()
		who := strings.TrimSpace(string(holder))
		if who == "" {
			who = "an unknown process"
		}
		if rest, mine := strings.CutPrefix(who, fmt.Sprintf("process %d ", os.Getpid())); mine {
			who = "this process itself " + rest
		}
		return nil, fmt.Errorf("%w by %s", store.ErrInUse, who)
	}
	who := fmt.Sprintf("process %d (%s), since %s\n",
		os.Getpid(), filepath.Base(os.Args[0]), time.Now().UTC().Format(time.RFC3339))
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(who), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("the directory can not be written to: %w", err)
	}
	return &dirLock{f}, nil
}

func (l *dirLock) release() {
	if l != nil {
		_ = l.f.Truncate(0)
		_ = l.f.Close()
	}
}
