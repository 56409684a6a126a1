//go:build !unix

package diskstore

import "os"

// lockFile: Pebble's own lock on the directory has to do.
func lockFile(*os.File) error { return nil }
