package redissource

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/store"
)

// times are when an entry is due and, where its score tells that, was created.
func (o *Options) times(score string) (due, created time.Time, err error) {
	at, err := o.Unit.Instant("score", score)
	if err != nil || !o.Created {
		return at, time.Time{}, err
	}
	due, err = store.DueTime(at, time.Time{}, o.Delay)
	if err != nil {
		return due, at, fmt.Errorf("its score %s and the delay end after the year 9999", score)
	}
	return due, at, nil
}

// Unit is what scores count.
type Unit = takeover.Unit

// The units.
const (
	Seconds      = takeover.Seconds
	Milliseconds = takeover.Milliseconds
)
