package redissource

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/duetime/duetime/store"
)

// Unit is what scores count.
type Unit string

// The units.
const (
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
)

// early is before any task that a person has scheduled by such means. A score that
// says so is taken for one in another unit, and not for a task that is due now.
var early = time.Date(1973, 3, 3, 0, 0, 0, 0, time.UTC)

// instant is the time that a score tells; what is finer than a millisecond is
// rounded up.
func (u Unit) instant(score string) (time.Time, error) {
	x, err := strconv.ParseFloat(score, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("its score %q is no number", score)
	}
	ms := x
	if u == Seconds {
		ms *= 1000
	}
	// Not more exact than the score is: 1700000000.1 s is not 0.0999999 s.
	if r := math.Round(ms); math.Abs(ms-r) < 1e-3 {
		ms = r
	}
	ms = math.Ceil(ms)
	switch {
	case math.IsNaN(ms) || math.IsInf(ms, 0) || ms > float64(store.MaxTime.UnixMilli()):
		return time.Time{}, fmt.Errorf("its score %s is after the year 9999 in %s: is it in another unit?", score, u)
	case ms < float64(early.UnixMilli()):
		return time.Time{}, fmt.Errorf("its score %s is before March 1973 in %s: is it in another unit?", score, u)
	}
	return time.UnixMilli(int64(ms)).UTC(), nil
}

// times are when an entry is due and, where its score tells that, was created.
func (o *Options) times(score string) (due, created time.Time, err error) {
	at, err := o.Unit.instant(score)
	if err != nil || !o.Created {
		return at, time.Time{}, err
	}
	due, err = store.DueTime(at, time.Time{}, o.Delay)
	if err != nil {
		return due, at, fmt.Errorf("its score %s and the delay end after the year 9999", score)
	}
	return due, at, nil
}
