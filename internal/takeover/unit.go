package takeover

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/duetime/duetime/store"
)

// Unit is what numbers that tell times count.
type Unit string

// The units.
const (
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
	Microseconds Unit = "us"
	Nanoseconds  Unit = "ns"
)

// milliseconds in one, 0 for what is no unit.
func (u Unit) milliseconds() float64 {
	switch u {
	case Seconds:
		return 1000
	case Milliseconds:
		return 1
	case Microseconds:
		return 1e-3
	case Nanoseconds:
		return 1e-6
	}
	return 0
}

// Known reports whether it is one of the units above.
func (u Unit) Known() bool { return u.milliseconds() != 0 }

// early is before any task that a person has scheduled by such means. A number that
// says so is taken for one in another unit, and not for a task that is due now.
var early = time.Date(1973, 3, 3, 0, 0, 0, 0, time.UTC)

// Instant is the time that a number tells; what is finer than a millisecond is
// rounded up. Errors call the number by the name that is given, such as score.
func (u Unit) Instant(name, number string) (time.Time, error) {
	x, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("its %s %q is no number", name, number)
	}
	ms := x * u.milliseconds()
	// Not more exact than the number is: 1700000000.1 s is not 0.0999999 s.
	if r := math.Round(ms); math.Abs(ms-r) < 1e-3 {
		ms = r
	}
	ms = math.Ceil(ms)
	switch {
	case math.IsNaN(ms) || math.IsInf(ms, 0) || ms > float64(store.MaxTime.UnixMilli()):
		return time.Time{}, fmt.Errorf("its %s %s is after the year 9999 in %s: is it in another unit?", name, number, u)
	case ms < float64(early.UnixMilli()):
		return time.Time{}, fmt.Errorf("its %s %s is before March 1973 in %s: is it in another unit?", name, number, u)
	}
	return time.UnixMilli(int64(ms)).UTC(), nil
}
