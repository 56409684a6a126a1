package storetest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

var settingsCases = []testCase{
	{"the default is version 0", settings, func(e *env) {
		s, err := e.st.Settings(e.ctx, "absent")
		e.must(err)
		if s != store.DefaultSettings() {
			e.Errorf("%+v, want %+v", s, store.DefaultSettings())
		}
	}},
	{"come back as they were put, with a new version", settings, func(e *env) {
		want := store.Settings{
			Paused: true, MaxAttempts: 7, MaxLost: 1_000_000, Lease: 1500 * time.Millisecond, Release: "every 5s",
			Backoff: store.Backoff{Initial: 1500 * time.Millisecond, Max: 365 * 24 * time.Hour, Factor: 1.5, Jitter: 0.25},
		}
		for range 3 {
			got, err := e.st.PutSettings(e.ctx, q, want)
			e.must(err)
			if got.Version <= want.Version {
				e.Errorf("version %d after %d, want a higher one", got.Version, want.Version)
			}
			want.Version = got.Version
			if got != want {
				e.Errorf("put returned %+v, want %+v", got, want)
			}
			got, err = e.st.Settings(e.ctx, q)
			e.must(err)
			if got != want {
				e.Errorf("got %+v, want %+v", got, want)
			}
			want.Paused, want.MaxAttempts = !want.Paused, want.MaxAttempts+1
		}
	}},
	{"a version that is not the newest changes nothing", settings, func(e *env) {
		mine, err := e.st.Settings(e.ctx, q)
		e.must(err)
		theirs := e.set(func(s *store.Settings) { s.MaxAttempts = 3 })
		mine.MaxAttempts = 9
		for _, version := range []int64{mine.Version, theirs.Version + 1} {
			mine.Version = version
			if _, err := e.st.PutSettings(e.ctx, q, mine); !isVersion(err) {
				e.Errorf("put with version %d: error %v, want ErrVersion", version, err)
			}
		}
		if got, _ := e.st.Settings(e.ctx, q); got != theirs {
			e.Errorf("settings are %+v, want %+v", got, theirs)
		}
		mine.Version = 7
		if _, err := e.st.PutSettings(e.ctx, "absent", mine); !isVersion(err) {
			e.Errorf("put for a queue that does not exist with version 7: error %v, want ErrVersion", err)
		}
		queues, err := e.st.Queues(e.ctx)
		e.must(err)
		if !slices.Equal(queues, []string{q}) {
			e.Errorf("queues %q, want only %q", queues, q)
		}
	}},
	{"wrong ones are refused and nothing changes", settings, func(e *env) {
		for field, spoils := range map[string][]func(*store.Settings){
			"settings.version":         {func(s *store.Settings) { s.Version = -1 }},
			"settings.max_attempts":    {func(s *store.Settings) { s.MaxAttempts = 0 }, func(s *store.Settings) { s.MaxAttempts = store.MaxAttemptLimit + 1 }},
			"settings.max_lost":        {func(s *store.Settings) { s.MaxLost = 0 }, func(s *store.Settings) { s.MaxLost = store.MaxAttemptLimit + 1 }},
			"settings.lease":           {func(s *store.Settings) { s.Lease = 0 }, func(s *store.Settings) { s.Lease = store.MaxLease + 1 }},
			"settings.backoff.initial": {func(s *store.Settings) { s.Backoff.Initial = 0 }},
			"settings.backoff.max":     {func(s *store.Settings) { s.Backoff.Max = s.Backoff.Initial - 1 }, func(s *store.Settings) { s.Backoff.Max = math.MaxInt64 }},
			"settings.backoff.factor":  {func(s *store.Settings) { s.Backoff.Factor = 0.5 }, func(s *store.Settings) { s.Backoff.Factor = math.NaN() }, func(s *store.Settings) { s.Backoff.Factor = math.Inf(1) }},
			"settings.backoff.jitter":  {func(s *store.Settings) { s.Backoff.Jitter = -0.1 }, func(s *store.Settings) { s.Backoff.Jitter = 1.1 }, func(s *store.Settings) { s.Backoff.Jitter = math.NaN() }},
		} {
			for _, spoil := range spoils {
				s := store.DefaultSettings()
				spoil(&s)
				_, err := e.st.PutSettings(e.ctx, q, s)
				e.inputError(fmt.Sprintf("%+v", s), err, field)
			}
		}
		_, err := e.st.PutSettings(e.ctx, "a b", store.DefaultSettings())
		e.inputError("put", err, "queue")
		_, err = e.st.Settings(e.ctx, "a b")
		e.inputError("get", err, "queue")
		if got, err := e.st.Settings(e.ctx, q); err != nil || got != store.DefaultSettings() {
			e.Errorf("settings are %+v, %v", got, err)
		}
	}},
	{"of one queue say nothing about another", settings, func(e *env) {
		e.set(func(s *store.Settings) { s.Paused = true })
		s, err := e.st.Settings(e.ctx, "other")
		e.must(err)
		if s != store.DefaultSettings() {
			e.Errorf("another queue has %+v", s)
		}
		e.create(store.NewTask{Queue: "other", ID: "1", Due: e.past()})
		if got := e.claimResult("other", 1).Tasks; len(got) != 1 {
			e.Error("another queue is paused")
		}
	}},
	{"paused: nothing is handed out, all else goes on", settings, func(e *env) {
		e.ready("1", "2")
		l := e.lease("1")
		e.set(func(s *store.Settings) { s.Paused = true })
		e.nothing("the queue is paused")
		r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, AtMostOnce: true})[0]
		if len(r.Tasks) != 0 {
			e.Errorf("a paused queue gave %v at most once", ids(r.Tasks))
		}
		e.counts(0, 1, 1, 0)
		e.settled(store.Extended, store.Settlement{Receipt: l.Receipt, Action: store.Extend})
		e.ack(l)
		e.create(store.NewTask{ID: "3", Due: e.past().Add(time.Hour / 2)})
		e.counts(0, 2, 0, 0)
		e.set(func(s *store.Settings) { s.Paused = false })
		e.sameIDs("claim", ids(e.claim(10)), []string{"2", "3"})
	}},
	{"a lease that runs out while paused is lost all the same", settings, func(e *env) {
		e.ready("1")
		l := e.leaseFor("1", e.short(100*time.Millisecond))
		e.set(func(s *store.Settings) { s.Paused = true })
		e.advanceTo(l.LeaseUntil)
		e.counts(0, 1, 0, 0)
		e.stale(l, "ran out")
		e.set(func(s *store.Settings) { s.Paused = false })
		if l := e.lease("1"); l.Lost != 1 {
			e.Errorf("lost %d, want 1", l.Lost)
		}
	}},
	{"empty a queue and they stay", settings | purge, func(e *env) {
		want := e.set(func(s *store.Settings) { s.MaxAttempts = 3 })
		e.ready("1")
		for _, state := range store.States() {
			_, err := e.st.Purge(e.ctx, q, state)
			e.must(err)
		}
		if got, err := e.st.Settings(e.ctx, q); err != nil || got != want {
			e.Errorf("settings are %+v, %v; want %+v", got, err, want)
		}
	}},
}
