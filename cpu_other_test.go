//go:build !unix

package duetime_test

import "time"

func cpu() time.Duration { return 0 }
