// Package clock wakes sleepers at instants of the wall clock.
//
// Go's own timers are not good enough for that. They run on the monotonic clock,
// so that they sleep through a jump of the wall clock and through the suspension
// of the machine, and when the process is idle they fire up to a millisecond
// late, since the runtime then waits in whole milliseconds. On Linux a System
// therefore uses one timerfd for all its alarms. Elsewhere, in a bubble of
// testing/synctest, where time is make-believe and no kernel knows of it, and
// where a timerfd can not be had, it uses Go's timers and looks at the wall clock
// at least once a second.
package clock

import (
	"container/heap"
	"sync"
	"time"
)

// Clock is where a sleeper gets the time and its alarms from. It is an interface
// so that tests can make the time jump.
type Clock interface {
	// Now is the wall clock.
	Now() time.Time
	// NewAlarm makes an alarm that is not set.
	NewAlarm() Alarm
	// Virtual reports that time is make-believe: it passes only while everybody
	// sleeps, and never jumps.
	Virtual() bool
}

// Alarm wakes one sleeper. Its methods are not to be called by several
// goroutines at once.
type Alarm interface {
	// C ticks once after the instant that was set. It also ticks, once or more
	// often than there is reason to, when the wall clock was changed: look at the
	// clock and set the alarm anew.
	C() <-chan struct{}
	// Set sets the alarm to an instant, in place of the one before. One that has
	// passed ticks at once. Of a tick that nobody took it is not known whether it
	// was of this instant or of the one before.
	Set(at time.Time)
	// Stop unsets the alarm. It can be set again.
	Stop()
}

// System is the system's clock. The zero value is not usable; see New. It needs no
// closing: it holds a file and a goroutine only while alarms are set, and for a
// short while longer.
type System struct {
	virtual bool

	mu    sync.Mutex
	heap  alarmHeap
	timer timer // nil where nothing runs
}

// timer waits for one instant. Set and close are called under System.mu.
type timer interface {
	set(at time.Time)
	close()
}

// New makes a clock. It finds out by itself whether it is in a bubble of
// testing/synctest; one that was made outside is not to be used inside.
func New() *System { return &System{virtual: virtual()} }

// Now is the wall clock.
func (s *System) Now() time.Time { return time.Now() }

// Virtual reports whether the clock was made in a bubble of testing/synctest.
func (s *System) Virtual() bool { return s.virtual }

// NewAlarm makes an alarm that is not set.
func (s *System) NewAlarm() Alarm {
	return &alarm{system: s, c: make(chan struct{}, 1), index: -1}
}

type alarm struct {
	system *System
	c      chan struct{}

	// Under System.mu.
	at    time.Time // without a monotonic reading
	index int       // in the heap; -1: not set
}

func (a *alarm) C() <-chan struct{} { return a.c }

func (a *alarm) Set(at time.Time) {
	s := a.system
	s.mu.Lock()
	defer s.mu.Unlock()
	first := a.index == 0
	a.at = at.Round(0)
	if a.index < 0 {
		heap.Push(&s.heap, a)
	} else {
		heap.Fix(&s.heap, a.index)
	}
	if first || a.index == 0 {
		s.arm(s.heap[0].at)
	}
}

func (a *alarm) Stop() {
	s := a.system
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.index < 0 {
		return
	}
	heap.Remove(&s.heap, a.index)
	// The timer is left as it is: when it fires in vain it finds out what is next.
	// Only in a bubble, which can not end while it is there, must it go.
	if len(s.heap) == 0 && s.virtual {
		s.disarm()
	}
}

func (a *alarm) ring() {
	select {
	case a.c <- struct{}{}:
	default: // a tick is waiting to be taken already
	}
}

func (s *System) arm(at time.Time) {
	if s.timer == nil {
		s.timer = s.newTimer()
	}
	s.timer.set(at)
}

func (s *System) disarm() {
	if s.timer != nil {
		s.timer.close()
		s.timer = nil
	}
}

func (s *System) newTimer() timer {
	if !s.virtual {
		if t := newKernelTimer(s); t != nil {
			return t
		}
	}
	return newGoTimer(s)
}

// fired rings the alarms whose time has come, or all where the wall clock was
// changed, and sets the timer for the next one. Where there is none it reports
// false, and the timer stays unset.
func (s *System) fired(t timer, changed bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != t {
		return false
	}
	now := time.Now().Round(0)
	for len(s.heap) > 0 && (changed || !s.heap[0].at.After(now)) {
		a := s.heap[0]
		heap.Pop(&s.heap)
		a.ring()
	}
	if len(s.heap) == 0 {
		return false
	}
	t.set(s.heap[0].at)
	return true
}

// broken replaces a timer that has failed. One of Go's can not.
func (s *System) broken(t timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != t {
		return
	}
	t.close()
	s.timer = newGoTimer(s)
	if len(s.heap) > 0 {
		s.timer.set(s.heap[0].at)
	}
}

// idle closes a timer that nothing waits for.
func (s *System) idle(t timer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == t && len(s.heap) == 0 {
		s.disarm()
	}
	return s.timer != t
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *alarmHeap) Pop() any {
	old := *h
	a := old[len(old)-1]
	a.index = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return a
}
