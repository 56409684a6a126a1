package clock

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ahead is how long before an alarm's instant the timer fires. A thread that sleeps
// in the kernel takes some 50 µs to get going, at times twice that; so it begins
// to before, and what is left it waits out awake. That costs a processor at most
// this long for each instant, and nothing while no alarm is near.
const ahead = 100 * time.Microsecond

// linger is for how long a timerfd and its goroutine outlive the last alarm.
const linger = 10 * time.Second

// kernelTimer is a timerfd on the wall clock, read by one goroutine through the
// runtime's poller.
type kernelTimer struct {
	system *System
	file   *os.File
	conn   syscall.RawConn
}

// newKernelTimer returns nil where the kernel gives none, such as for want of
// file descriptors, or under a sandbox that knows no timerfd.
func newKernelTimer(s *System) timer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	// The descriptor is nonblocking, so that os.File reads it through the poller
	// and a sleeping goroutine holds no thread. Deadlines work only there: this
	// finds out whether it does.
	t := &kernelTimer{system: s, file: os.NewFile(uintptr(fd), "timerfd")}
	t.conn, err = t.file.SyscallConn()
	if err != nil || t.file.SetReadDeadline(time.Time{}) != nil || t.setTime(time.Now().Add(time.Hour)) != nil {
		t.file.Close()
		return nil
	}
	go t.run()
	return t
}

func (t *kernelTimer) run() {
	var buf [8]byte
	waiting := true // whether an alarm is set
	for {
		if waiting {
			_ = t.file.SetReadDeadline(time.Time{})
		} else {
			_ = t.file.SetReadDeadline(time.Now().Add(linger))
		}
		n, err := t.file.Read(buf[:])
		switch {
		case err == nil && n == len(buf) && binary.NativeEndian.Uint64(buf[:]) > 0:
			t.system.waitAwake()
			waiting = t.system.fired(t, false)
		case errors.Is(err, unix.ECANCELED): // the wall clock was changed
			waiting = t.system.fired(t, true)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if t.system.idle(t) {
				return
			}
			waiting = true
		default:
			t.system.broken(t) // or closed; then this does nothing
			return
		}
	}
}

func (t *kernelTimer) set(at time.Time) {
	if err := t.setTime(at); err != nil {
		// It can not be read any more either: the goroutine finds out and puts
		// another in its place.
		t.file.Close()
	}
}

func (t *kernelTimer) setTime(at time.Time) error {
	// Zero would unset the timer, times before 1970 are refused, and those that
	// nanoseconds can not hold are far enough away to be as good as the last.
	ns := int64(1)
	if at.Year() >= 2262 {
		ns = 1<<63 - 1
	} else if at.Unix() > 0 {
		ns = max(ns, at.UnixNano()-int64(ahead))
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(ns)}
	var errSet error
	err := t.conn.Control(func(fd uintptr) {
		const flags = unix.TFD_TIMER_ABSTIME | unix.TFD_TIMER_CANCEL_ON_SET
		errSet = unix.TimerfdSettime(int(fd), flags, &spec, nil)
		if errors.Is(errSet, unix.ECANCELED) {
			// The clock was changed since the last read. The timer is set all the
			// same, and the change is reported here instead of by the next read.
			// Ring all: what comes too early does no harm.
			errSet = nil
			go t.system.fired(t, true)
		}
	})
	return errors.Join(err, errSet)
}

// waitAwake lets others run until the first alarm's instant, if it is as near as it
// should be. An alarm that is set meanwhile counts too.
func (s *System) waitAwake() {
	for {
		s.mu.Lock()
		wait := time.Duration(-1)
		if len(s.heap) > 0 {
			wait = s.heap[0].at.Sub(time.Now().Round(0))
		}
		s.mu.Unlock()
		if wait <= 0 || wait > ahead {
			return
		}
		runtime.Gosched()
	}
}

func (t *kernelTimer) close() { t.file.Close() }

// virtual reports whether this is a bubble of testing/synctest: time.Now is then
// not what the kernel says.
func virtual() bool {
	const slack = time.Millisecond
	for range 3 { // the wall clock may be changed in between
		before := time.Now().Round(0)
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME, &ts) != nil {
			return true // Go's timers are right in both cases
		}
		after := time.Now().Round(0)
		kernel := time.Unix(ts.Unix())
		if !kernel.Before(before.Add(-slack)) && !kernel.After(after.Add(slack)) {
			return false
		}
	}
	return true
}
