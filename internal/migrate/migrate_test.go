package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/faultstore"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/storetest"
)

const q = "orders"

// world is two stores on one clock, with a worker at the destination that runs
// what it gets, and a log of what ran.
type world struct {
	testing.TB
	ctx      context.Context
	clock    *storetest.Clock
	from, to store.Store // without faults
	want     map[string]store.Task
	runs     map[string][]store.Lease
	order    []string
}

func newWorld(t testing.TB) *world {
	clock := storetest.NewClock()
	return &world{
		TB: t, ctx: context.Background(), clock: clock,
		from: memstore.New(&memstore.Options{Now: clock.Now}), to: memstore.New(&memstore.Options{Now: clock.Now}),
		want: make(map[string]store.Task), runs: make(map[string][]store.Lease),
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// put imports tasks into the source, a moment later each.
func (w *world) put(tasks ...store.Task) {
	w.Helper()
	for _, t := range tasks {
		t.Queue = q
		if t.State == 0 {
			t.State = store.StateScheduled
		}
		w.clock.Advance(time.Millisecond)
		t.Created = w.clock.Now()
		r, err := w.from.(store.Importer).Import(w.ctx, []store.Task{t})
		w.must(err)
		if r[0].Outcome != store.Created {
			w.Fatalf("%v %v", r[0].Outcome, r[0].Err)
		}
		w.want[t.ID] = t
	}
}

// fill has some of everything: overdue tasks, several of them due at once, future
// ones, one that is due later than any hold, retried ones, dead ones.
func (w *world) fill() {
	w.Helper()
	now := w.clock.Now()
	for i := range 7 {
		w.put(store.Task{ID: fmt.Sprint("same", 9-i), Due: now.Add(-time.Hour), Payload: []byte{byte(i), 0xff}})
	}
	for i := range 5 {
		w.put(store.Task{ID: fmt.Sprint("past", i), Due: now.Add(-time.Minute * time.Duration(i)), Headers: map[string]string{"i": fmt.Sprint(i)}})
	}
	for i := range 6 {
		w.put(store.Task{ID: fmt.Sprint("future", i), Due: now.Add(time.Hour * time.Duration(1+i/2)), Failures: i, Lost: 1, Generation: 2, MaxAttempts: 30, LastError: "again"})
	}
	w.put(store.Task{ID: "last", Due: store.MaxTime}, store.Task{ID: "日本 {}:/\"\\<", Due: now.Add(time.Minute)})
	for i := range 4 {
		w.put(store.Task{ID: fmt.Sprint("dead", i), State: store.StateDead, Due: now.Add(-time.Hour), Failures: 25, LastError: "boom", Payload: []byte("dead")})
	}
}

func (w *world) settings() store.Settings {
	s := store.DefaultSettings()
	s.Release, s.MaxAttempts, s.Lease = "every 1s", 77, time.Minute
	got, err := w.from.PutSettings(w.ctx, q, s)
	w.must(err)
	return got
}

// work runs all that is due at the destination.
func (w *world) work() {
	w.Helper()
	for {
		r, err := w.to.Claim(w.ctx, []store.ClaimRequest{{Queue: q, Max: 3, Lease: time.Minute}})
		w.must(err)
		if len(r[0].Tasks) == 0 {
			return
		}
		for _, l := range r[0].Tasks {
			w.runs[l.ID] = append(w.runs[l.ID], l)
			w.order = append(w.order, l.ID)
			s, err := w.to.Settle(w.ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}})
			w.must(err)
			if s[0].Outcome != store.Acked {
				w.Fatalf("ack: %v", s[0].Outcome)
			}
		}
	}
}

var quick = Options{To: "to", Obeyed: time.Nanosecond, PageSize: 4}

// errKilled is what calls return in a process that is no more.
var errKilled = errors.New("killed")

// dying lets a process end at its nth call, before it or after it but before the
// answer. Before each call it lets do, if there is one, happen to the stores.
func (w *world) dying(n int, before bool, do func(step int, side string, c faultstore.Call)) (from, to store.Store, steps *int) {
	steps = new(int)
	script := func(side string) faultstore.Script {
		return func(c faultstore.Call) faultstore.Fault {
			*steps++
			if n > 0 && *steps > n {
				return faultstore.Fault{FailBefore: errKilled}
			}
			if do != nil {
				do(*steps, side, c)
			}
			switch {
			case *steps != n:
				return faultstore.Fault{}
			case before:
				return faultstore.Fault{FailBefore: errKilled}
			default:
				return faultstore.Fault{FailAfter: errKilled}
			}
		}
	}
	return faultstore.New(w.from, script("from")), faultstore.New(w.to, script("to")), steps
}

func (w *world) run(opts Options) *Report {
	w.Helper()
	w.clock.Advance(lockLease + time.Second)
	r, err := Run(w.ctx, w.from, w.to, opts)
	w.must(err)
	return r
}

// check says that all that was at the source has run once at the destination or
// is there as it should be, and that the source is empty and as it was.
func (w *world) check() {
	w.Helper()
	for _, state := range store.States() {
		page, err := w.from.List(w.ctx, store.ListRequest{Queue: q, State: state})
		w.must(err)
		for _, t := range page.Tasks {
			w.Errorf("%s is still at the source, %v", t.ID, t.State)
		}
	}
	s, err := w.from.Settings(w.ctx, q)
	w.must(err)
	if s.Paused {
		w.Error("the source is still paused")
	}
	if there, err := w.from.Stats(w.ctx, journalQueue); err != nil || there != (store.Stats{}) {
		w.Errorf("the mover's books are not closed: %+v, %v", there, err)
	}
	w.work()
	for id, t := range w.want {
		r, err := w.to.Get(w.ctx, []store.Key{{Queue: q, ID: id}})
		w.must(err)
		if r[0].Outcome != store.Found {
			continue
		}
		got := *r[0].Task
		if t.State == store.StateScheduled && !t.Due.After(w.clock.Now()) {
			t.State = store.StateReady
		}
		if got.State != t.State || !got.Due.Equal(t.Due) || !got.Created.Equal(t.Created) || got.Failures != t.Failures || got.Lost != t.Lost ||
			got.Generation != t.Generation || got.MaxAttempts != t.MaxAttempts || got.LastError != t.LastError || !bytes.Equal(got.Payload, t.Payload) {
			w.Errorf("%s is %+v, want %+v", id, got, t)
		}
	}
	// The order of those that are due at the same time, but for what ran before.
	w.clock.Advance(24 * time.Hour)
	w.work()
	dead := 0
	for id, t := range w.want {
		runs := w.runs[id]
		want := 1
		if t.State == store.StateDead || t.Due.Equal(store.MaxTime) {
			want = 0
		}
		if t.State == store.StateDead {
			dead++
		}
		if len(runs) != want {
			w.Errorf("%s ran %d times, want %d", id, len(runs), want)
		}
		for _, l := range runs {
			if l.ClaimedAt.Before(t.Due) {
				w.Errorf("%s ran at %v, %v early", id, l.ClaimedAt, t.Due.Sub(l.ClaimedAt))
			}
			if !bytes.Equal(l.Payload, t.Payload) || l.Attempt() != t.Failures+t.Lost+1 || !l.Due.Equal(t.Due) {
				w.Errorf("%s ran as %+v, want %+v", id, l.Task, t)
			}
		}
	}
	stats, err := w.to.Stats(w.ctx, q)
	w.must(err)
	if stats.Scheduled != 1 || int(stats.Dead) != dead || stats.Ready+stats.Leased != 0 {
		w.Errorf("the destination has %+v, want the one that is never due and the %d dead", stats, dead)
	}
}

// inOrder says that tasks ran in the order of the source.
func (w *world) inOrder() {
	w.Helper()
	var want []string
	for id, t := range w.want {
		if len(w.runs[id]) > 0 && t.State != store.StateDead {
			want = append(want, id)
		}
	}
	slices.SortFunc(want, func(a, b string) int {
		if c := w.want[a].Due.Compare(w.want[b].Due); c != 0 {
			return c
		}
		return w.want[a].Created.Compare(w.want[b].Created)
	})
	if !slices.Equal(w.order, want) {
		w.Errorf("ran in the order %v, want %v", w.order, want)
	}
}

func TestMove(t *testing.T) {
	w := newWorld(t)
	w.fill()
	s := w.settings()
	var last Progress
	opts := quick
	opts.Progress = func(p Progress) { last = p }
	r := w.run(opts)
	if total := r.Total(); total.Live != 20 || total.Dead != 4 || total.Stuck+total.Running != 0 || total.CountersLost || total.StaysPaused {
		t.Errorf("report %+v", total)
	}
	if r.Queues[0].Settings != SettingsCopied {
		t.Errorf("settings: %v", r.Queues[0].Settings)
	}
	if last.Done != 24 || last.Total != 24 {
		t.Errorf("progress ends with %+v", last)
	}
	got, err := w.to.Settings(w.ctx, q)
	w.must(err)
	if !same(got, s) {
		t.Errorf("settings %+v, want %+v", got, s)
	}
	w.check()
	w.inOrder()
}

// TestDiesAnywhere ends the mover at every call that it makes, before and after
// it, while a worker is at work, and lets it go on.
func TestDiesAnywhere(t *testing.T) {
	for _, before := range []bool{true, false} {
		for n := 1; ; n++ {
			w := newWorld(t)
			w.fill()
			w.settings()
			work := func(int, string, faultstore.Call) { w.work() }
			from, to, steps := w.dying(n, before, work)
			if _, err := Run(w.ctx, from, to, quick); !errors.Is(err, errKilled) {
				if *steps >= n {
					t.Fatalf("killed at call %d: %v", n, err)
				}
				t.Logf("%d calls", *steps)
				break
			}
			w.work()
			w.run(quick)
			w.check()
			if t.Failed() {
				t.Fatalf("killed at call %d, before it: %v", n, before)
			}
		}
	}
}

// TestDiesTwice ends it a second time while it goes on.
func TestDiesTwice(t *testing.T) {
	first, second := 0, 0
	for n := 8; n < 60; n += 3 {
		for k := 1; k < 40; k += 2 {
			w := newWorld(t)
			w.fill()
			w.settings()
			work := func(int, string, faultstore.Call) { w.work() }
			from, to, _ := w.dying(n, n%2 == 0, work)
			if _, err := Run(w.ctx, from, to, quick); errors.Is(err, errKilled) {
				first++
			}
			w.clock.Advance(lockLease + time.Second)
			from, to, _ = w.dying(k, k%4 == 1, work)
			if _, err := Run(w.ctx, from, to, quick); errors.Is(err, errKilled) {
				second++
			}
			w.run(quick)
			w.check()
			if t.Failed() {
				t.Fatalf("killed at call %d, then at call %d", n, k)
			}
		}
	}
	if first < 300 || second < 300 {
		t.Errorf("killed %d and %d times only", first, second)
	}
}

// TestCancelledMeansNever cancels each task at the source before each call that
// the mover makes.
func TestCancelledMeansNever(t *testing.T) {
	for _, id := range []string{"same9", "past0", "future0", "future5", "dead1"} {
		for n := 1; ; n++ {
			w := newWorld(t)
			w.fill()
			cancelled, steps := false, 0
			from, to, _ := w.dying(0, false, func(step int, _ string, c faultstore.Call) {
				if steps = step; step == n {
					r, err := w.from.Cancel(w.ctx, []store.CancelRequest{{Queue: q, ID: id}})
					w.must(err)
					cancelled = r[0].Outcome == store.Cancelled
				}
				w.work()
			})
			_, err := Run(w.ctx, from, to, quick)
			w.must(err)
			if steps < n {
				break
			}
			if cancelled {
				r, err := w.to.Get(w.ctx, []store.Key{{Queue: q, ID: id}})
				w.must(err)
				if r[0].Outcome != store.NotFound {
					t.Errorf("%s, cancelled at the source before call %d, is at the destination", id, n)
				}
				delete(w.want, id)
				if len(w.runs[id]) > 0 {
					t.Errorf("%s, cancelled at the source before call %d, ran", id, n)
				}
			}
			w.check()
			if t.Failed() {
				return
			}
		}
	}
}

// TestChangesAreTakenAlong moves a task to another time, or replaces it, before each
// call that the mover makes, but for the moment between the last look and the
// cancel, in which a change is lost.
func TestChangesAreTakenAlong(t *testing.T) {
	changed := 0
	for _, id := range []string{"same9", "future0", "future5"} {
		for _, replace := range []bool{false, true} {
			for n := 1; ; n++ {
				w := newWorld(t)
				w.fill()
				due, steps, blind := w.clock.Now().Add(3*time.Hour), 0, false
				from, to, _ := w.dying(0, false, func(step int, side string, c faultstore.Call) {
					steps = step
					want := w.want[id]
					if step == n && !blind && w.isThere(w.from, id) {
						w.clock.Advance(time.Millisecond)
						changed++
						want.Due = due
						if replace {
							want.Payload, want.Created, want.Failures, want.Lost, want.MaxAttempts, want.LastError = []byte("new"), w.clock.Now(), 0, 0, 0, ""
							want.Generation++
							_, err := w.from.Schedule(w.ctx, []store.NewTask{{Queue: q, ID: id, Payload: want.Payload, Due: due, Conflict: store.ConflictReplace}})
							w.must(err)
						} else {
							_, err := w.from.Reschedule(w.ctx, []store.RescheduleRequest{{Queue: q, ID: id, Due: due}})
							w.must(err)
						}
						w.want[id] = want
					}
					if side == "from" {
						blind = c.Op == faultstore.Get || blind && c.Op != faultstore.Cancel && c.Op != faultstore.List
					}
					w.work()
				})
				_, err := Run(w.ctx, from, to, quick)
				w.must(err)
				w.check()
				if t.Failed() {
					t.Fatalf("%s, changed before call %d (replaced: %v)", id, n, replace)
				}
				if steps < n {
					break
				}
			}
		}
	}
	if changed < 60 {
		t.Errorf("changed %d times only", changed)
	}
}

func (w *world) isThere(st store.Store, id string) bool {
	w.Helper()
	r, err := st.Get(w.ctx, []store.Key{{Queue: q, ID: id}})
	w.must(err)
	return r[0].Outcome == store.Found
}

// TestProducersGoOn schedules at the source before each call, and at the
// destination another task with an id that the source has.
func TestProducersGoOn(t *testing.T) {
	w := newWorld(t)
	w.fill()
	n := 0
	from, to, _ := w.dying(0, false, func(step int, _ string, c faultstore.Call) {
		if n < 40 {
			n++
			w.put(store.Task{ID: fmt.Sprint("new", n), Due: w.clock.Now().Add(time.Duration(n-20) * time.Second)})
		}
	})
	r, err := Run(w.ctx, from, to, quick)
	w.must(err)
	if total := r.Total(); total.Live != 60 || total.Dead != 4 {
		t.Errorf("report %+v", total)
	}
	w.check()
}
