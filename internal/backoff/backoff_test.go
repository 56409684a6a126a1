package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

func none() float64 { return 0 }

func TestGrowsToTheCapAndStays(t *testing.T) {
	for _, b := range []store.Backoff{
		{Initial: time.Second, Max: 5 * time.Minute, Factor: 2},
		{Initial: time.Second, Max: time.Hour, Factor: 10, Jitter: 0},
		{Initial: time.Hour, Max: 365 * 24 * time.Hour, Factor: 100},
		{Initial: time.Hour, Max: math.MaxInt64, Factor: 2},
		{Initial: time.Millisecond, Max: time.Hour, Factor: 1},
	} {
		last := time.Duration(0)
		for attempt := range 2000 {
			d := Delay(b, attempt, none)
			if d < last || d < time.Millisecond || d > b.Max {
				t.Fatalf("%+v, attempt %d: %v after %v", b, attempt, d, last)
			}
			last = d
		}
		if b.Factor > 1 && last != b.Max {
			t.Errorf("%+v: ends at %v, want the cap", b, last)
		}
	}
	b := store.Backoff{Initial: time.Second, Max: time.Hour, Factor: 2}
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 13: time.Hour} {
		if got := Delay(b, attempt, none); got != want {
			t.Errorf("attempt %d: %v, want %v", attempt, got, want)
		}
	}
}

func TestJitterTakesAway(t *testing.T) {
	b := store.Backoff{Initial: 8 * time.Second, Max: time.Hour, Factor: 2, Jitter: 0.25}
	if got := Delay(b, 1, none); got != 8*time.Second {
		t.Errorf("least jitter: %v", got)
	}
	if got := Delay(b, 1, func() float64 { return 0.5 }); got != 7*time.Second {
		t.Errorf("middle: %v", got)
	}
	b.Jitter = 1
	almost := func() float64 { return 1 - 1e-16 }
	if got := Delay(b, 1, almost); got != time.Millisecond {
		t.Errorf("full jitter, most: %v, want 1ms", got)
	}
}

func TestSenselessSettingsAreSurvived(t *testing.T) {
	for _, b := range []store.Backoff{
		{},
		{Initial: math.MaxInt64, Max: math.MaxInt64, Factor: math.Inf(1), Jitter: 1},
		{Initial: -time.Hour, Max: time.Hour, Factor: 2},
		{Initial: time.Second, Max: -time.Hour, Factor: 2},
		{Initial: time.Second, Max: time.Hour, Factor: math.NaN()},
		{Initial: 0, Max: time.Hour, Factor: 2, Jitter: 7},
	} {
		for _, attempt := range []int{math.MinInt, -1, 0, 1, 60, 5000, math.MaxInt} {
			for _, r := range []float64{0, 0.5, 0.999999} {
				d := Delay(b, attempt, func() float64 { return r })
				if d < time.Millisecond || d > max(b.Max, time.Millisecond) {
					t.Errorf("%+v, attempt %d, rnd %v: %v", b, attempt, r, d)
				}
			}
		}
	}
}
