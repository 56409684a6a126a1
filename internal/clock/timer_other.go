//go:build !linux

package clock

import "time"

func newKernelTimer(*System) timer { return nil }

// virtual reports whether this is a bubble of testing/synctest: time then stands
// still while a goroutine runs.
func virtual() bool {
	start := time.Now()
	for range 1 << 20 {
		if time.Since(start) > 0 {
			return false
		}
	}
	return true
}
