package storetest

import (
	"time"

	"github.com/duetime/duetime/store"
)

var releaseCases = []testCase{
	{"every so often: at its multiples, not between", release | settings | fakeClock, func(e *env) {
		e.set(func(s *store.Settings) { s.Release = "every 5s" })
		base := e.nextMultiple(5 * time.Second)
		e.create(
			store.NewTask{ID: "a", Due: base.Add(time.Millisecond)},
			store.NewTask{ID: "b", Due: base.Add(5 * time.Second)},
			store.NewTask{ID: "c", Due: base.Add(5*time.Second + time.Millisecond)},
		)
		e.advanceTo(base.Add(time.Millisecond))
		e.next(base.Add(5 * time.Second))
		e.counts(2, 1, 0, 0) // ready, though held back
		e.advanceTo(base.Add(5*time.Second - time.Millisecond))
		e.nothing("a millisecond before the multiple")
		e.advanceTo(base.Add(5 * time.Second))
		got := e.claimResult(q, 10)
		e.sameIDs("at the multiple", ids(got.Tasks), []string{"a", "b"})
		e.advanceTo(base.Add(7 * time.Second))
		e.nothing("the third is held back")
		for _, l := range got.Tasks {
			e.ack(l)
		}
		e.next(base.Add(10 * time.Second))
		e.advanceTo(base.Add(12 * time.Second))
		e.sameIDs("after the next multiple", ids(e.claim(10)), []string{"c"}) // a multiple that nobody saw counts too
	}},
	{"by cron with seconds", release | settings | fakeClock, func(e *env) {
		e.set(func(s *store.Settings) { s.Release = "30 * * * * *" })
		base := e.nextMultiple(time.Minute)
		e.create(store.NewTask{ID: "1", Due: base.Add(time.Second)}, store.NewTask{ID: "2", Due: base.Add(31 * time.Second)})
		e.advanceTo(base.Add(29 * time.Second))
		e.next(base.Add(30 * time.Second))
		e.advanceTo(base.Add(30 * time.Second))
		e.ack(e.lease("1"))
		e.advanceTo(base.Add(89 * time.Second))
		e.next(base.Add(90 * time.Second))
		e.advanceTo(base.Add(90 * time.Second))
		e.lease("2")
	}},
	{"by cron in a zone", release | settings | fakeClock, func(e *env) {
		// 07:00 in Shanghai is 23:00 UTC all year.
		e.set(func(s *store.Settings) { s.Release = "CRON_TZ=Asia/Shanghai 0 0 7 * * *" })
		now := e.now()
		seven := time.Date(now.Year(), now.Month(), now.Day(), 23, 0, 0, 0, time.UTC)
		if !seven.After(now) {
			seven = seven.AddDate(0, 0, 1)
		}
		e.create(store.NewTask{ID: "1", Due: now.Add(time.Second)})
		e.advance(2 * time.Second)
		e.next(seven)
		e.advanceTo(seven.Add(-time.Millisecond))
		e.nothing("it is not yet seven in Shanghai")
		e.advanceTo(seven)
		e.lease("1")
	}},
	{"by cron of five fields, at the full minute", release | settings | fakeClock, func(e *env) {
		e.set(func(s *store.Settings) { s.Release = "* * * * *" })
		base := e.nextMultiple(time.Minute)
		e.create(store.NewTask{ID: "1", Due: base.Add(time.Second)})
		e.advanceTo(base.Add(59 * time.Second))
		e.nothing("the minute is not full")
		e.advanceTo(base.Add(time.Minute))
		e.lease("1")
	}},
	{"changed while tasks wait", release | settings | fakeClock, func(e *env) {
		base := e.nextMultiple(time.Hour)
		e.advanceTo(base.Add(time.Second))
		e.set(func(s *store.Settings) { s.Release = "0 0 * * * *" })
		e.create(store.NewTask{ID: "1", Due: base.Add(2 * time.Second)}, store.NewTask{ID: "2", Due: base.Add(9 * time.Second)})
		e.advanceTo(base.Add(3 * time.Second))
		e.next(base.Add(time.Hour))
		e.set(func(s *store.Settings) { s.Release = "every 5s" })
		e.next(base.Add(5 * time.Second))
		e.advanceTo(base.Add(5 * time.Second))
		e.ack(e.lease("1"))
		e.advanceTo(base.Add(9 * time.Second))
		e.nothing("the second is held back")
		e.set(func(s *store.Settings) { s.Release = store.ReleaseImmediate })
		e.lease("2")
	}},
	{"holds back retries and lost leases too", release | settings | fakeClock, func(e *env) {
		e.set(func(s *store.Settings) { s.Release = "every 10s" })
		base := e.nextMultiple(10 * time.Second)
		e.create(store.NewTask{ID: "1", Due: base})
		e.advanceTo(base)
		l := e.leaseFor("1", 3*time.Second)
		e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Second})
		e.advanceTo(base.Add(2 * time.Second))
		e.nothing("the retry is held back")
		e.advanceTo(base.Add(10 * time.Second))
		l = e.leaseFor("1", 3*time.Second)
		e.advanceTo(l.LeaseUntil)
		e.lease("1") // it was let out once: its due time is before the last multiple
	}},
	{"nonsense is refused", release | settings, func(e *env) {
		for _, text := range []string{"", "soon", "every", "every 0s", "every -5s", "every 5", "* * *", "61 * * * * *", "* * * * * * * *", "CRON_TZ=Nowhere/Land 0 0 7 * * *", "0 0 30 2 *"} {
			s := store.DefaultSettings()
			s.Release = text
			_, err := e.st.PutSettings(e.ctx, q, s)
			e.inputError("release "+text, err, "settings.release")
		}
		if got, err := e.st.Settings(e.ctx, q); err != nil || got != store.DefaultSettings() {
			e.Errorf("settings are %+v, %v", got, err)
		}
	}},
}

// nextMultiple is the first multiple of d, counted from 1970, after now.
func (e *env) nextMultiple(d time.Duration) time.Time {
	e.Helper()
	ms := e.now().UnixMilli()
	return time.UnixMilli(ms - ms%d.Milliseconds() + d.Milliseconds()).UTC()
}
