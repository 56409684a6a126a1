package clock

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// patience is for how long a test waits for what must happen before it gives up.
const patience = 10 * time.Second

func tick(t *testing.T, a Alarm) time.Time {
	t.Helper()
	select {
	case <-a.C():
		return time.Now()
	case <-time.After(patience):
		t.Fatal("the alarm did not ring")
		return time.Time{}
	}
}

// systems are clocks of each kind that this machine has.
func systems() map[string]func() *System {
	return map[string]func() *System{
		"kernel": New,
		"go": func() *System {
			s := New()
			s.timer = newGoTimer(s)
			return s
		},
	}
}

func TestAlarmRingsAtItsTimeAndNotBefore(t *testing.T) {
	for name, clock := range systems() {
		t.Run(name, func(t *testing.T) {
			s := clock()
			a := s.NewAlarm()
			defer a.Stop()
			for _, d := range []time.Duration{-time.Hour, 0, time.Microsecond, 300 * time.Microsecond, 20 * time.Millisecond, 1100 * time.Millisecond} {
				at := time.Now().Add(d).Round(0)
				a.Set(at)
				if now := tick(t, a); now.Before(at) {
					t.Errorf("set for %v from now, rang %v early", d, at.Sub(now))
				}
			}
			a.Set(time.Time{}) // as far in the past as can be
			tick(t, a)
		})
	}
}

func TestAlarmsRingInOrderAndAnEarlierOneIsNotHeldUp(t *testing.T) {
	for name, clock := range systems() {
		t.Run(name, func(t *testing.T) {
			s := clock()
			start := time.Now().Round(0)
			far, moved, unset, near := s.NewAlarm(), s.NewAlarm(), s.NewAlarm(), s.NewAlarm()
			far.Set(start.AddDate(7000, 0, 0))
			moved.Set(start.Add(time.Hour))
			unset.Set(start.Add(time.Millisecond))
			unset.Stop()
			unset.Stop()
			near.Set(start.Add(20 * time.Millisecond))
			moved.Set(start.Add(40 * time.Millisecond))
			if now := tick(t, near); now.Before(start.Add(20 * time.Millisecond)) {
				t.Error("the near one rang early")
			}
			if now := tick(t, moved); now.Before(start.Add(40 * time.Millisecond)) {
				t.Error("the moved one rang early")
			}
			select {
			case <-far.C():
				t.Error("the far one rang")
			case <-unset.C():
				t.Error("the one that was unset rang")
			default:
			}
			far.Stop()
		})
	}
}

func TestChangeOfTheWallClockRingsAll(t *testing.T) {
	s := New()
	alarms := []Alarm{s.NewAlarm(), s.NewAlarm()}
	for _, a := range alarms {
		a.Set(time.Now().Add(time.Hour))
	}
	s.fired(s.timer, true)
	for _, a := range alarms {
		tick(t, a)
	}
}

func TestGoTimerNoticesAChangeOfTheWallClock(t *testing.T) {
	for name, jump := range map[string]time.Duration{"forward": time.Minute, "back": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			s := New()
			g := newGoTimer(s)
			s.timer = g
			a := s.NewAlarm()
			defer a.Stop()
			a.Set(time.Now().Add(time.Hour))
			// As if the wall clock had jumped since the timer last looked at it.
			s.mu.Lock()
			g.wall = g.wall.Add(-jump)
			s.mu.Unlock()
			tick(t, a)
		})
	}
}

func TestTimerThatFailsIsReplaced(t *testing.T) {
	s := New()
	a := s.NewAlarm()
	defer a.Stop()
	a.Set(time.Now().Add(30 * time.Millisecond))
	s.mu.Lock()
	broken := s.timer
	broken.close()
	s.mu.Unlock()
	tick(t, a)
	a.Set(time.Now().Add(time.Millisecond))
	tick(t, a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == broken && runtime.GOOS == "linux" {
		t.Error("the broken timer is still in use")
	}
}

func TestBubbleIsFoundOutAndItsTimeIsExact(t *testing.T) {
	if New().Virtual() {
		t.Fatal("this is no bubble")
	}
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{0, time.Hour, 30 * 365 * 24 * time.Hour} {
			time.Sleep(wait)
			s := New()
			if !s.Virtual() {
				t.Fatalf("after %v: this is a bubble", wait)
			}
			a := s.NewAlarm()
			for _, d := range []time.Duration{time.Nanosecond, 30 * time.Minute, 24 * 365 * time.Hour} {
				at := time.Now().Add(d)
				a.Set(at)
				<-a.C()
				if !time.Now().Equal(at) {
					t.Errorf("rang at %v, was set for %v", time.Now(), at)
				}
			}
			a.Set(time.Now().Add(time.Hour))
			a.Stop()
		}
	})
}

func TestNothingIsHeldOnceNoAlarmIsSet(t *testing.T) {
	s := New()
	a := s.NewAlarm()
	a.Set(time.Now().Add(time.Millisecond))
	tick(t, a)
	s.mu.Lock()
	k := s.timer
	s.mu.Unlock()
	before := running()
	if before == 0 {
		t.Skip("no kernel timers here")
	}
	if !s.idle(k) { // what it does when it has lingered
		t.Error("the timer is still there")
	}
	deadline := time.Now().Add(patience)
	for running() >= before {
		if time.Now().After(deadline) {
			t.Fatal("its goroutine is still there")
		}
		time.Sleep(time.Millisecond)
	}
	a.Set(time.Now().Add(time.Millisecond))
	tick(t, a)
}

// running counts the goroutines of kernel timers.
func running() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "kernelTimer).run(")
}

// BenchmarkLateness says how late alarms ring in an idle process.
func BenchmarkLateness(b *testing.B) {
	for name, clock := range systems() {
		b.Run(name, func(b *testing.B) {
			s := clock()
			a := s.NewAlarm()
			defer a.Stop()
			var late []time.Duration
			for b.Loop() {
				at := time.Now().Add(3*time.Millisecond + time.Duration(len(late)%7)*131*time.Microsecond).Round(0)
				a.Set(at)
				<-a.C()
				late = append(late, time.Now().Round(0).Sub(at))
			}
			slices.Sort(late)
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "p99-µs")
		})
	}
}
