package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var retryCases = []testCase{
	{"counts a failure and comes back after its delay", get, func(e *env) {
		e.create(store.NewTask{ID: "1", Due: e.past(), Payload: []byte("p"), Headers: map[string]string{"a": "b"}})
		l := e.lease("1")
		before := e.now()
		r := e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: e.short(300 * time.Millisecond), Error: "boom"})
		e.between("due", r.Due, before, e.now(), e.short(300*time.Millisecond))
		want := l.Task
		want.State, want.Due, want.Worker, want.LeaseUntil = store.StateScheduled, r.Due, "", time.Time{}
		want.Failures, want.LastError = 1, "boom"
		e.same("retrying", e.task("1"), want)
		e.nothing("it is due in 300 ms")
		e.advanceTo(r.Due)
		l = e.lease("1")
		if l.Attempt() != 2 || string(l.Payload) != "p" || l.LastError != "boom" {
			e.Errorf("attempt %d, payload %q, error %q", l.Attempt(), l.Payload, l.LastError)
		}
	}},
	{"without a delay it is due now", 0, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry})
		e.advance(time.Millisecond)
		e.lease("1")
	}},
	{"a later error text takes the place of an earlier one", get, func(e *env) {
		e.ready("1")
		for _, text := range []string{"one", "two", ""} {
			l := e.lease("1")
			e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Error: text})
			if got := e.task("1").LastError; got != text {
				e.Errorf("last error %q, want %q", got, text)
			}
			e.advance(time.Millisecond)
		}
	}},
	{"dead when max_attempts have failed", settings | get, func(e *env) {
		e.set(func(s *store.Settings) { s.MaxAttempts = 3 })
		e.ready("1")
		e.fails("1", 3)
		t := e.state("1", store.StateDead)
		if t.Failures != 3 || t.LastError != "failure 3" {
			e.Errorf("dead with %d failures, error %q", t.Failures, t.LastError)
		}
		e.nothing("it is dead")
	}},
	{"a dead task keeps its due time", settings | get, func(e *env) {
		e.set(func(s *store.Settings) { s.MaxAttempts = 1 })
		e.ready("1")
		l := e.lease("1")
		e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Hour})
		if t := e.state("1", store.StateDead); !t.Due.Equal(l.Due) {
			e.Errorf("due %v, want %v", t.Due, l.Due)
		}
	}},
	{"the default is 25 attempts", 0, func(e *env) {
		e.ready("1")
		e.fails("1", 25)
	}},
	{"a task's own limit goes before the queue's, lower and higher", settings | get, func(e *env) {
		e.set(func(s *store.Settings) { s.MaxAttempts = 3 })
		e.create(store.NewTask{ID: "1", Due: e.past(), MaxAttempts: 1})
		e.fails("1", 1)
		e.create(store.NewTask{ID: "2", Due: e.past(), MaxAttempts: 5})
		e.fails("2", 5)
	}},
	{"a changed limit counts for tasks that are there", settings, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry})
		e.advance(time.Millisecond)
		l = e.lease("1")
		e.set(func(s *store.Settings) { s.MaxAttempts = 2 })
		e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Retry})
	}},
	{"backoff grows to its cap and never wraps round", settings | fakeClock, func(e *env) {
		for _, b := range []store.Backoff{
			{Initial: time.Second, Factor: 2, Max: 5 * time.Minute},
			{Initial: time.Second, Factor: 10, Max: 365 * 24 * time.Hour},
			{Initial: time.Hour, Factor: 100, Max: 365 * 24 * time.Hour},
			{Initial: time.Millisecond, Factor: 1, Max: time.Millisecond},
			{Initial: 1500 * time.Millisecond, Factor: 1.5, Max: time.Hour},
		} {
			e.set(func(s *store.Settings) { s.Backoff, s.MaxAttempts = b, 1000 })
			id := fmt.Sprint(b)
			e.ready(id)
			want, before := float64(b.Initial), time.Duration(0)
			for n := 1; n <= 100; n++ {
				l := e.lease(id)
				now := e.now()
				r := e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Backoff: true})
				got := r.Due.Sub(now)
				if wanted := min(time.Duration(want), b.Max); got < wanted || got > wanted+time.Millisecond+wanted/1e6 || got < before {
					e.Fatalf("backoff %+v: delay %v after failure %d, want %v (before it %v)", b, got, n, wanted, before)
				}
				if want < float64(b.Max) {
					want *= b.Factor
				}
				before = got
				e.advanceTo(r.Due)
			}
			e.ack(e.lease(id))
		}
	}},
	{"jitter takes off up to its share and spreads", settings, func(e *env) {
		for _, jitter := range []float64{0.5, 1} {
			e.set(func(s *store.Settings) {
				s.Backoff = store.Backoff{Initial: 1000 * time.Second, Factor: 2, Max: time.Hour, Jitter: jitter}
			})
			var names []string
			for i := range 200 {
				names = append(names, fmt.Sprint(jitter, "/", i))
			}
			e.ready(names...)
			var settle []store.Settlement
			for _, l := range e.claim(200) {
				settle = append(settle, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Backoff: true})
			}
			before := e.now()
			results := e.settle(settle...)
			after := e.now()
			low, high := time.Duration(float64(1000*time.Second)*(1-jitter)), 1000*time.Second
			lowest, highest := time.Duration(1<<62), time.Duration(0)
			for _, r := range results {
				e.outcome("retry", r, store.Retrying)
				if r.Due.Before(before.Add(max(low, time.Millisecond))) || r.Due.After(after.Add(high+time.Millisecond)) {
					e.Fatalf("jitter %v: delay %v, want %v to %v", jitter, r.Due.Sub(before), low, high)
				}
				lowest, highest = min(lowest, r.Due.Sub(before)), max(highest, r.Due.Sub(before))
			}
			// 200 draws from an interval leave more than half of it between
			// lowest and highest, but for a chance of less than 10^-57.
			if highest-lowest < (high-low)/2 {
				e.Errorf("jitter %v: all delays between %v and %v", jitter, lowest, highest)
			}
		}
	}},
	{"a delay that was asked for is not jittered", settings, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		before := e.now()
		r := e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: 7 * time.Second})
		e.between("due", r.Due, before, e.now(), 7*time.Second)
	}},
}

// fails lets a task fail until it is dead, which must be after n failures.
func (e *env) fails(id string, n int) {
	e.Helper()
	for i := 1; i <= n; i++ {
		l := e.lease(id)
		if l.Attempt() != i {
			e.Fatalf("attempt %d, want %d", l.Attempt(), i)
		}
		want := store.Retrying
		if i == n {
			want = store.Dead
		}
		e.settled(want, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Error: fmt.Sprint("failure ", i)})
		e.advance(time.Millisecond)
	}
}
