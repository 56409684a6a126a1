package migrate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/faultstore"
)

func TestIDInUseAtTheDestinationStays(t *testing.T) {
	w := newWorld(t)
	w.fill()
	_, err := w.to.Schedule(w.ctx, []store.NewTask{
		{Queue: q, ID: "same9", Due: w.clock.Now().Add(time.Hour), Payload: []byte("theirs")},
		{Queue: q, ID: "dead2", Due: w.clock.Now().Add(time.Hour), Payload: []byte("theirs")},
	})
	w.must(err)
	for range 2 { // the second time nothing else is left
		r := w.run(quick)
		if total := r.Total(); total.Stuck != 2 || total.StaysPaused {
			t.Errorf("report %+v", total)
		}
		if s := r.Queues[0].FirstStuck; len(s) != 2 || s[0].ID != "same9" || s[1].ID != "dead2" || !strings.Contains(s[0].Why, "in use") {
			t.Errorf("stuck: %v", s)
		}
	}
	for _, id := range []string{"same9", "dead2"} {
		r, err := w.to.Get(w.ctx, []store.Key{{Queue: q, ID: id}})
		w.must(err)
		if string(r[0].Task.Payload) != "theirs" {
			t.Errorf("%s at the destination is %+v", id, r[0].Task)
		}
		if r, err = w.from.Cancel(w.ctx, []store.CancelRequest{{Queue: q, ID: id}}); err != nil || r[0].Outcome != store.Cancelled {
			t.Errorf("%s is not at the source any more: %v, %v", id, r, err)
		}
		_, err = w.to.Cancel(w.ctx, []store.CancelRequest{{Queue: q, ID: id}})
		w.must(err)
		delete(w.want, id)
	}
	w.check()
}

// noImport is a store without the optional part.
type noImport struct{ store.Store }

func TestWithoutImporter(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.clock.Advance(lockLease)
	r, err := Run(w.ctx, w.from, noImport{w.to}, quick)
	w.must(err)
	total := r.Total()
	if total.Live != 20 || total.Dead != 0 || total.Stuck != 4 || !total.CountersLost {
		t.Errorf("report %+v", total)
	}
	if s := r.Queues[0].FirstStuck; len(s) != 4 || !strings.Contains(s[0].Why, "dead") {
		t.Errorf("stuck: %v", s)
	}
	w.clock.Advance(24 * time.Hour)
	w.work()
	if len(w.order) != 19 {
		t.Errorf("%d ran: %v", len(w.order), w.order)
	}
	w.inOrder()
}

// likeRabbit is a store that can not look a task up, as RabbitMQ can not.
type likeRabbit struct{ store.Store }

func (likeRabbit) Capabilities() store.Capabilities {
	return store.Capabilities{Name: "rabbit", MaxPayload: store.MaxPayloadBytes, Settings: true, Release: true, Redrive: true}
}

// A store that can not be moved from, or to, is told before anything is touched.
func TestStoreThatCanNotBeMoved(t *testing.T) {
	w := newWorld(t)
	w.fill()
	for _, end := range []struct {
		from, to store.Store
		want     string
	}{{likeRabbit{w.from}, w.to, "list its tasks"}, {w.from, likeRabbit{w.to}, "look tasks up"}} {
		r, err := Run(w.ctx, end.from, end.to, quick)
		if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "a rabbit store can not "+end.want) {
			t.Errorf("error %v, want that a rabbit store can not %s", err, end.want)
		}
		if len(r.Queues) > 0 {
			t.Errorf("report %+v", r)
		}
	}
	if names, err := w.to.Queues(w.ctx); len(names) > 0 || err != nil {
		t.Errorf("the destination has the queues %v, %v", names, err)
	}
	w.run(quick)
	w.work()
	w.check()
}

func TestRunningTasksAreWaitedForOrNamed(t *testing.T) {
	w := newWorld(t)
	w.put(store.Task{ID: "a", Due: w.clock.Now()}, store.Task{ID: "b", Due: w.clock.Now()})
	c, err := w.from.Claim(w.ctx, []store.ClaimRequest{{Queue: q, Max: 2, Lease: time.Hour}})
	w.must(err)
	r := w.run(quick)
	if total := r.Total(); total.Running != 2 || total.Live != 0 || !slices.Equal(r.Queues[0].FirstRunning, []string{"a", "b"}) {
		t.Errorf("report %+v, %v", total, r.Queues[0].FirstRunning)
	}
	// One is done while it is waited for, the other fails and is moved then.
	opts := quick
	opts.Wait = time.Minute
	calls := 0
	opts.Progress = func(p Progress) {
		if calls++; p.Waiting == 2 {
			s, err := w.from.Settle(w.ctx, []store.Settlement{
				{Receipt: c[0].Tasks[0].Receipt, Action: store.Ack},
				{Receipt: c[0].Tasks[1].Receipt, Action: store.Retry, Delay: time.Minute, Error: "no"},
			})
			w.must(err)
			if s[1].Outcome != store.Retrying {
				t.Error(s[1].Outcome)
			}
		}
	}
	r = w.run(opts)
	if total := r.Total(); total.Running != 0 || total.Live != 1 || calls < 2 {
		t.Errorf("report %+v", total)
	}
	w.clock.Advance(time.Hour)
	w.work()
	if len(w.runs["a"]) != 0 || len(w.runs["b"]) != 1 || w.runs["b"][0].Attempt() != 2 {
		t.Errorf("runs: %v", w.runs)
	}
}

func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ctx, cancel := context.WithCancel(w.ctx)
	opts := quick
	opts.Progress = func(Progress) { cancel() }
	r, err := Run(ctx, w.from, w.to, opts)
	w.must(err)
	if total := r.Total(); !r.Interrupted || total.Live == 0 || total.Live == 20 || total.StaysPaused {
		t.Errorf("interrupted %v, report %+v", r.Interrupted, total)
	}
	s, err := w.from.Settings(w.ctx, q)
	w.must(err)
	if s.Paused {
		t.Error("the source is still paused")
	}
	w.run(quick)
	w.check()
	w.inOrder()
}

func TestPauseThatWasThereStaysAndIsCopied(t *testing.T) {
	w := newWorld(t)
	w.fill()
	s := store.DefaultSettings()
	s.Paused = true
	_, err := w.from.PutSettings(w.ctx, q, s)
	w.must(err)
	w.run(quick)
	for name, st := range map[string]store.Store{"source": w.from, "destination": w.to} {
		if s, err := st.Settings(w.ctx, q); err != nil || !s.Paused {
			t.Errorf("the %s is not paused (%v)", name, err)
		}
	}
}

func TestSettingsOfTheDestinationStay(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.settings()
	theirs := store.DefaultSettings()
	theirs.Lease = time.Hour
	theirs, err := w.to.PutSettings(w.ctx, q, theirs)
	w.must(err)
	if r := w.run(quick); r.Queues[0].Settings != SettingsKept {
		t.Errorf("settings: %v", r.Queues[0].Settings)
	}
	if got, err := w.to.Settings(w.ctx, q); err != nil || got != theirs {
		t.Errorf("settings %+v, %v; want %+v", got, err, theirs)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.fill()
	if _, err := Run(w.ctx, w.from, faultstore.New(w.from, nil), quick); err == nil || !strings.Contains(err.Error(), `TO "to" is the same store`) && !strings.Contains(err.Error(), `TO "to": is the same store`) {
		t.Errorf("from a store to itself: %v", err)
	}
	opts := quick
	opts.Queues = []string{"absent"}
	var input *store.InputError
	if _, err := Run(w.ctx, w.from, w.to, opts); !errors.As(err, &input) {
		t.Errorf("a queue that is not there: %v", err)
	}
	w.clock.Advance(lockLease + time.Second)
	from, to, _ := w.dying(30, true, nil)
	if _, err := Run(w.ctx, from, to, quick); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.clock.Advance(lockLease + time.Second)
	opts = quick
	opts.To = "another"
	if _, err := Run(w.ctx, w.from, w.to, opts); err == nil || !strings.Contains(err.Error(), "to to was broken off") {
		t.Errorf("to another store than the one that was begun with: %v", err)
	}
	w.run(quick)
	w.check()
}

func TestTwoMoversAtOnce(t *testing.T) {
	w := newWorld(t)
	l, err := takeLock(w.ctx, w.from, w.to, "to")
	w.must(err)
	alive := faultstore.New(w.from, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Get {
			w.clock.Advance(time.Second)
			l.kept = time.Time{}
			w.must(l.keep(w.ctx))
		}
		return faultstore.Fault{}
	})
	if _, err := Run(w.ctx, alive, w.to, quick); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("a second mover beside one that is alive: %v", err)
	}
	// One that was killed is known by its lease, which runs out.
	killed := faultstore.New(w.from, func(c faultstore.Call) faultstore.Fault {
		w.clock.Advance(lockLease / 5)
		return faultstore.Fault{}
	})
	if _, err := Run(w.ctx, killed, w.to, quick); err != nil {
		t.Errorf("after one that was killed: %v", err)
	}
	l.kept = time.Time{}
	if err := l.keep(w.ctx); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("a lock that another has taken: %v", err)
	}
}

// tight is a store with room for a few tasks.
type tight struct {
	store.Store
	room int
}

func (s *tight) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	n := min(s.room, len(tasks))
	s.room -= n
	results, err := s.Store.(store.Importer).Import(ctx, tasks[:n])
	for range tasks[n:] {
		results = append(results, store.Result{Err: store.ErrFull})
	}
	return results, err
}

// TestFullDestination: the source goes on with what there was no room for.
func TestFullDestination(t *testing.T) {
	w := newWorld(t)
	w.fill()
	if _, err := Run(w.ctx, w.from, &tight{w.to, 10}, quick); !errors.Is(err, store.ErrFull) {
		t.Errorf("a full destination: %v", err)
	}
	s, err := w.from.Settings(w.ctx, q)
	w.must(err)
	if s.Paused {
		t.Error("the source is still paused")
	}
	stats, err := w.to.Stats(w.ctx, q)
	w.must(err)
	if stats.Scheduled > 0 {
		t.Errorf("the destination holds %+v", stats)
	}
	w.run(quick)
	w.check()
}

// TestCallsMadeTwice: a store behind a network may make a call again whose answer was
// lost, and say that the tasks are there.
func TestCallsMadeTwice(t *testing.T) {
	for _, op := range []faultstore.Op{faultstore.Import, faultstore.Schedule} {
		w := newWorld(t)
		w.fill()
		twice := store.Store(faultstore.New(w.to, faultstore.Nth(op, 0, faultstore.Fault{Twice: true})))
		if op == faultstore.Schedule {
			twice = noImport{twice}
		}
		r, err := Run(w.ctx, w.from, twice, quick)
		w.must(err)
		if total := r.Total(); total.Live != 20 || op == faultstore.Import && total.Stuck != 0 {
			t.Errorf("%s: report %+v, %v", op, total, r.Queues[0].FirstStuck)
		}
		if op == faultstore.Import {
			w.check()
		}
	}
}
