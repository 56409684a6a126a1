package diskstore

import (
	"errors"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Exists reports whether there is a store in a directory, which Open would make
// there otherwise. Nothing is made or changed, and the store may be in use. Where it
// can not be told, it is true: then Open says why.
func Exists(dir string) bool {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	found, err := pebble.Peek(dir, vfs.Default)
	return err != nil || found.Exists
}
