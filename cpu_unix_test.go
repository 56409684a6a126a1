//go:build unix

package duetime_test

import (
	"syscall"
	"time"
)

// cpu is the processor time that this process has used. On a machine that does
// other things too it says more than the clock.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
