//go:build unix && !linux

package testserver

import "syscall"

// dieWithParent can not be had here: a server outlives a test process that is
// killed.
func dieWithParent(*syscall.SysProcAttr) {}
