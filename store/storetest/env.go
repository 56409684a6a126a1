package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// q is the queue of most tests.
const q = "orders"

// env is what a case works with: a store whose every answer is checked, and
// short words for what tests do most.
type env struct {
	testing.TB
	ctx     context.Context
	in      *Instance
	st      *watched
	caps    store.Capabilities
	maxWait time.Duration
	late    time.Duration

	log   *history.Log
	moved atomic.Int64 // by how much the clock was moved
}

func newEnv(t testing.TB, h Harness, n needs) *env {
	t.Helper()
	in := h.Open(t)
	e := &env{TB: t, ctx: context.Background(), in: in, caps: in.Store.Capabilities(), maxWait: h.MaxWait, late: h.Late}
	if e.maxWait == 0 {
		e.maxWait = 3 * time.Second
	}
	clock := time.Now
	if in.Advance != nil {
		start := e.clockOf(in.Store)
		clock = func() time.Time { return start.Add(time.Duration(e.moved.Load())) }
	}
	e.log = history.NewLog("test", clock)
	e.st = watch(t, in.Store, e.log)
	t.Cleanup(e.close)
	if !n.metBy(in) {
		t.Skip("the store does not have what this is about")
	}
	return e
}

// now is the store's clock.
func (e *env) now() time.Time {
	e.Helper()
	return e.clockOf(e.in.Store)
}

func (e *env) clockOf(st store.Store) time.Time {
	e.Helper()
	r, err := st.Claim(e.ctx, []store.ClaimRequest{{Queue: "clock", Max: 1}})
	e.must(err)
	return r[0].Now
}

// past is a due time well before now, so that what has it is ready at once.
func (e *env) past() time.Time { return e.now().Add(-time.Hour).Truncate(time.Second) }

// advance moves the store's clock, or waits until it has moved.
func (e *env) advance(d time.Duration) {
	e.Helper()
	if e.in.Advance != nil {
		e.moved.Add(int64(d))
		e.in.Advance(d)
		return
	}
	if d > e.maxWait {
		e.Skipf("needs a clock that can be moved by %v", d)
	}
	e.advanceTo(e.now().Add(d - e.late))
}

// short is a time that a test waits for. Where the clock can not be moved it is
// longer, so that a machine that is busy does not decide what is seen before it.
func (e *env) short(d time.Duration) time.Duration {
	if e.in.Advance == nil {
		return 4 * d
	}
	return d
}

func (e *env) advanceTo(at time.Time) {
	e.Helper()
	for {
		d := at.Add(e.late).Sub(e.now())
		if d <= 0 {
			return
		}
		if e.in.Advance != nil || d > e.maxWait {
			e.advance(d)
			continue
		}
		time.Sleep(d) // the loop looks at the store's clock again
	}
}

// soon looks whether something is so: once, or where the store is said to be late
// at times, again and again for ten times as long.
func (e *env) soon(so func() bool) {
	for end := time.Now().Add(10 * e.late); !so() && time.Now().Before(end); {
		time.Sleep(e.late / 20)
	}
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

func (e *env) schedule(tasks ...store.NewTask) []store.Result {
	e.Helper()
	r, err := e.st.Schedule(e.ctx, tasks)
	e.must(err)
	return r
}

// create schedules tasks that must all be new.
func (e *env) create(tasks ...store.NewTask) []store.Result {
	e.Helper()
	for i := range tasks {
		if tasks[i].Queue == "" {
			tasks[i].Queue = q
		}
	}
	r := e.schedule(tasks...)
	for i := range r {
		if r[i].Outcome != store.Created {
			e.Fatalf("schedule %q: %v (%v), want created", tasks[i].ID, r[i].Outcome, r[i].Err)
		}
	}
	return r
}

// ready creates tasks of the given ids that are due, an hour ago, a second
// apart, in the order of the ids.
func (e *env) ready(ids ...string) {
	e.Helper()
	past := e.past()
	var tasks []store.NewTask
	for i, id := range ids {
		tasks = append(tasks, store.NewTask{ID: id, Due: past.Add(time.Duration(i) * time.Second)})
	}
	e.create(tasks...)
}

func (e *env) claimRequests(r ...store.ClaimRequest) []store.ClaimResult {
	e.Helper()
	results, err := e.st.Claim(e.ctx, r)
	e.must(err)
	return results
}

// claimResult claims with a lease of a minute.
func (e *env) claimResult(queue string, n int) store.ClaimResult {
	e.Helper()
	r := e.claimRequests(store.ClaimRequest{Queue: queue, Max: n, Lease: time.Minute, Worker: "w"})[0]
	e.must(r.Err)
	return r
}

func (e *env) claim(n int) []store.Lease {
	e.Helper()
	return e.claimResult(q, n).Tasks
}

// lease claims one task, which must be the given one.
func (e *env) lease(id string) store.Lease { e.Helper(); return e.leaseFor(id, time.Minute) }

func (e *env) leaseFor(id string, d time.Duration) store.Lease {
	e.Helper()
	var r store.ClaimResult
	e.soon(func() bool {
		r = e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, Lease: d, Worker: "w"})[0]
		return r.Err != nil || len(r.Tasks) > 0
	})
	if r.Err != nil || len(r.Tasks) != 1 || r.Tasks[0].ID != id {
		e.Fatalf("claim: got %v (%v), want task %q", ids(r.Tasks), r.Err, id)
	}
	return r.Tasks[0]
}

// nothing says that a claim gets nothing.
func (e *env) nothing(why string) {
	e.Helper()
	if got := e.claim(store.MaxBatch); len(got) != 0 {
		e.Fatalf("%s: claim got %v, want nothing", why, ids(got))
	}
}

func (e *env) settle(s ...store.Settlement) []store.Result {
	e.Helper()
	r, err := e.st.Settle(e.ctx, s)
	e.must(err)
	return r
}

// settled settles one lease and wants an outcome.
func (e *env) settled(want store.Outcome, s store.Settlement) store.Result {
	e.Helper()
	r := e.settle(s)[0]
	e.outcome(s.Action.String(), r, want)
	return r
}

func (e *env) ack(l store.Lease) {
	e.Helper()
	e.settled(store.Acked, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
}

// stale says that a receipt is worth nothing, whatever is done with it, and that
// trying changes nothing about its task.
func (e *env) stale(l store.Lease, why string) {
	e.Helper()
	before := e.lookup(l.Queue, l.ID)
	for _, s := range []store.Settlement{
		{Action: store.Ack},
		{Action: store.Retry, Error: "from a stale worker", Delay: time.Hour},
		{Action: store.Retry, Error: "from a stale worker", Backoff: true},
		{Action: store.Snooze, Delay: time.Hour},
		{Action: store.Bury, Error: "from a stale worker"},
		{Action: store.Release},
		{Action: store.Extend, Lease: time.Hour},
	} {
		s.Receipt = l.Receipt
		if r := e.settle(s)[0]; r.Outcome != store.Stale {
			e.Fatalf("%s: %v with a stale receipt: %v (%v), want stale", why, s.Action, r.Outcome, r.Err)
		}
	}
	if after := e.lookup(l.Queue, l.ID); before != nil && after != nil {
		e.same(why+", after stale receipts", *after, *before)
	} else if (before == nil) != (after == nil) {
		e.Fatalf("%s: a stale receipt made the task come or go: %v, then %v", why, before, after)
	}
}

func (e *env) outcome(what string, r store.Result, want store.Outcome) {
	e.Helper()
	if r.Outcome != want {
		e.Fatalf("%s: %v (%v), want %v", what, r.Outcome, r.Err, want)
	}
}

func (e *env) cancel(want store.Outcome, id string, force bool) {
	e.Helper()
	r, err := e.st.Cancel(e.ctx, []store.CancelRequest{{Queue: q, ID: id, Force: force}})
	e.must(err)
	e.outcome(fmt.Sprintf("cancel %q", id), r[0], want)
}

func (e *env) move(want store.Outcome, id string, due time.Time) store.Result {
	e.Helper()
	r, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{{Queue: q, ID: id, Due: due}})
	e.must(err)
	e.outcome(fmt.Sprintf("reschedule %q", id), r[0], want)
	return r[0]
}

// lookup is nil where there is no such task, or where the store can not tell.
func (e *env) lookup(queue, id string) *store.Task {
	e.Helper()
	if !e.caps.Get {
		return nil
	}
	r, err := e.st.Get(e.ctx, []store.Key{{Queue: queue, ID: id}})
	e.must(err)
	if r[0].Outcome == store.NotFound {
		return nil
	}
	e.outcome("get "+id, r[0], store.Found)
	return r[0].Task
}

// task looks up one that must be there.
func (e *env) task(id string) store.Task {
	e.Helper()
	t := e.lookup(q, id)
	if t == nil {
		e.Fatalf("task %q: not found", id)
	}
	return *t
}

func (e *env) gone(id string) {
	e.Helper()
	if t := e.lookup(q, id); t != nil {
		e.Fatalf("task %q is still there, %v", id, t.State)
	}
}

func (e *env) state(id string, want store.State) store.Task {
	e.Helper()
	t := e.task(id)
	if t.State != want {
		e.Fatalf("task %q is %v, want %v", id, t.State, want)
	}
	return t
}

func (e *env) stats(queue string) store.Stats {
	e.Helper()
	s, err := e.st.Stats(e.ctx, queue)
	e.must(err)
	return s
}

func (e *env) counts(scheduled, ready, leased, dead int64) {
	e.Helper()
	want := [4]int64{scheduled, ready, leased, dead}
	var got [4]int64
	e.soon(func() bool {
		s := e.stats(q)
		got = [4]int64{s.Scheduled, s.Ready, s.Leased, s.Dead}
		return got == want
	})
	if got != want {
		e.Fatalf("stats count %v scheduled, ready, leased, dead; want %v", got, want)
	}
}

// listAll pages through a state.
func (e *env) listAll(queue string, state store.State, limit int, payloads bool) []store.Task {
	e.Helper()
	var all []store.Task
	r := store.ListRequest{Queue: queue, State: state, Limit: limit, Payloads: payloads}
	for {
		page, err := e.st.List(e.ctx, r)
		e.must(err)
		all = append(all, page.Tasks...)
		if page.Cursor == "" {
			return all
		}
		if len(page.Tasks) == 0 {
			e.Fatal("a page without tasks has a cursor")
		}
		r.Cursor = page.Cursor
	}
}

func (e *env) set(change func(*store.Settings)) store.Settings {
	e.Helper()
	s, err := e.st.Settings(e.ctx, q)
	e.must(err)
	change(&s)
	s, err = e.st.PutSettings(e.ctx, q, s)
	e.must(err)
	return s
}

// die makes a task, claims and buries it.
func (e *env) die(id, why string) {
	e.Helper()
	e.ready(id)
	l := e.lease(id)
	e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Bury, Error: why})
}

// inputError wants err to name a field, the value that was given, and a problem.
func (e *env) inputError(what string, err error, field string) {
	e.Helper()
	var input *store.InputError
	if !errors.As(err, &input) {
		e.Errorf("%s: error %v, want a *store.InputError", what, err)
		return
	}
	if input.Field != field || input.Value == "" || input.Problem == "" {
		e.Errorf("%s: error %q names field %q, want %q, a value and a problem", what, input, input.Field, field)
	}
}

func ids(leases []store.Lease) []string {
	names := make([]string, len(leases))
	for i := range leases {
		names[i] = leases[i].ID
	}
	return names
}

func taskIDs(tasks []store.Task) []string {
	names := make([]string, len(tasks))
	for i := range tasks {
		names[i] = tasks[i].ID
	}
	return names
}

func (e *env) sameIDs(what string, got, want []string) {
	e.Helper()
	if len(got) != len(want) {
		e.Fatalf("%s: got %d tasks %.300v, want %d %.300v", what, len(got), got, len(want), want)
	}
	for i := range got {
		if got[i] != want[i] {
			e.Fatalf("%s: number %d is %q, want %q (got %.300v, want %.300v)", what, i+1, got[i], want[i], got, want)
		}
	}
}

// same compares two tasks by all that callers can see.
func (e *env) same(what string, got, want store.Task) {
	e.Helper()
	if d := difference(got, want); d != "" {
		e.Fatalf("%s: task %q: %s", what, want.ID, d)
	}
}
