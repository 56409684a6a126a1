package testserver

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// await polls until condition returns nil. what says what was waited for.
func await(timeout time.Duration, what string, condition func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("testserver: %s: not after %v: %w", what, timeout, err)
		}
		time.Sleep(2 * pollInterval)
	}
}

// together runs do(0) to do(n-1) at the same time and joins their errors.
func together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
