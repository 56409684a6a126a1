package storetest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// importer skips where the store can not import.
func (e *env) importer() store.Importer {
	e.Helper()
	i, err := store.ImporterOf(e.ctx, e.st)
	if err != nil {
		if can, err := store.CanImport(e.ctx, e.st); can || err != nil {
			e.Fatalf("can it import? %v, %v", can, err)
		}
		e.Skip("the store can not import")
	}
	return i
}

func (e *env) take(tasks ...store.Task) []store.Result {
	e.Helper()
	i := e.importer()
	for n := range tasks {
		t := &tasks[n]
		if t.Queue == "" {
			t.Queue = q
		}
		if t.State == 0 {
			t.State = store.StateScheduled
		}
		if t.Created.IsZero() {
			t.Created = time.Date(2020, 1, 2, 3, 4, 5, 678e6, time.UTC)
		}
	}
	r, err := i.Import(e.ctx, tasks)
	e.must(err)
	return r
}

// taken imports tasks that must all be new.
func (e *env) taken(tasks ...store.Task) []store.Result {
	e.Helper()
	r := e.take(tasks...)
	for i := range r {
		e.outcome("import "+tasks[i].ID, r[i], store.Created)
	}
	return r
}

var importCases = []testCase{
	{"a task is as it was", get, func(e *env) {
		due := e.now().Add(time.Hour).Truncate(time.Millisecond)
		created := time.Date(1999, 12, 31, 23, 59, 59, 999e6, time.UTC)
		for i, state := range []store.State{store.StateScheduled, store.StateDead} {
			given := store.Task{
				Queue: q, ID: fmt.Sprint(i), State: state, Payload: []byte("\x00\xffpayload"), Headers: map[string]string{"a": "b"},
				Due: due, Created: created, Generation: 7, Failures: 3, Lost: 2, MaxAttempts: 11, LastError: "no\nroute",
			}
			r := e.taken(given)[0]
			if !r.Due.Equal(due) || !r.At.Equal(created) {
				e.Errorf("imported with due %v, created %v; want %v and %v", r.Due, r.At, due, created)
			}
			e.same("get", e.task(given.ID), given)
		}
		e.counts(1, 0, 0, 1)
	}},
	{"the smallest and the largest", get, func(e *env) {
		least := store.Task{Queue: q, ID: "least", State: store.StateScheduled, Due: store.MaxTime, Created: store.MinTime}
		most := store.Task{
			Queue: q, ID: strings.Repeat("é", 127) + "x", State: store.StateDead, Due: store.MinTime, Created: store.MaxTime,
			Payload: make([]byte, e.caps.MaxPayload), Headers: map[string]string{"h": strings.Repeat("v", store.MaxHeaderBytes-1)},
			Generation: math.MaxInt32, Failures: math.MaxInt32, Lost: math.MaxInt32, MaxAttempts: store.MaxAttemptLimit,
			LastError: strings.Repeat("e", store.MaxErrorBytes),
		}
		e.taken(least, most)
		e.same("the least", e.task(least.ID), least)
		e.same("the most", e.task(most.ID), most)
	}},
	{"times are rounded up and error texts cleaned", get, func(e *env) {
		due := e.now().Add(time.Hour).Truncate(time.Second)
		zone := time.FixedZone("UTC+8", 8*3600)
		e.taken(store.Task{ID: "1", Due: due.Add(1).In(zone), Created: due.Add(-time.Hour - 1), LastError: "a\x00b" + strings.Repeat("x", 2*store.MaxErrorBytes)})
		got := e.task("1")
		if !got.Due.Equal(due.Add(time.Millisecond)) || !got.Created.Equal(due.Add(-time.Hour)) {
			e.Errorf("due %v, created %v", got.Due, got.Created)
		}
		if !strings.HasPrefix(got.LastError, "abx") || len(got.LastError) > store.MaxErrorBytes {
			e.Errorf("last error %.20q… of %d bytes", got.LastError, len(got.LastError))
		}
	}},
	{"never handed out before it is due, then once, with its attempts", 0, func(e *env) {
		soon := e.now().Add(e.short(300 * time.Millisecond)).Truncate(time.Millisecond)
		e.taken(
			store.Task{ID: "now", Due: e.past(), Failures: 2, Lost: 1, Payload: []byte("p"), Generation: 3},
			store.Task{ID: "soon", Due: soon},
			store.Task{ID: "held", Due: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
			store.Task{ID: "dead", Due: e.past(), State: store.StateDead},
		)
		l := e.lease("now")
		if l.Attempt() != 4 || string(l.Payload) != "p" || l.Generation != 3 {
			e.Errorf("attempt %d, payload %q, generation %d; want 4, p, 3", l.Attempt(), l.Payload, l.Generation)
		}
		e.ack(l)
		e.advanceTo(soon)
		l = e.lease("soon")
		if l.Attempt() != 1 {
			e.Errorf("attempt %d, want 1", l.Attempt())
		}
		e.ack(l)
		e.nothing("one is due in the year 9999, one is dead")
		e.counts(1, 0, 0, 1)
	}},
	{"a state that waits is told by the due time", get, func(e *env) {
		e.taken(
			store.Task{ID: "a", State: store.StateReady, Due: e.now().Add(time.Hour)},
			store.Task{ID: "b", State: store.StateScheduled, Due: e.past()},
		)
		e.state("a", store.StateScheduled)
		e.state("b", store.StateReady)
		e.counts(1, 1, 0, 0)
	}},
	{"what is there stays, live or dead, and is shown", get, func(e *env) {
		e.die("dead", "boom")
		e.ready("leased")
		l := e.lease("leased")
		e.create(store.NewTask{ID: "live", Delay: time.Hour, Payload: []byte("old")})
		names := []string{"dead", "leased", "live"}
		var given, before []store.Task
		for _, id := range names {
			before = append(before, e.task(id))
			given = append(given, store.Task{ID: id, Due: e.past(), Payload: []byte("new"), Failures: 5})
		}
		for range 2 {
			for i, r := range e.take(given...) {
				e.outcome("import "+names[i], r, store.Exists)
				e.same("exists", *r.Task, before[i])
				e.same("afterwards", e.task(names[i]), before[i])
			}
		}
		e.ack(l)
		e.counts(1, 0, 0, 1)
	}},
	{"of two with one id the first is stored", get, func(e *env) {
		r := e.take(
			store.Task{ID: "1", Due: e.past(), Payload: []byte("first")},
			store.Task{ID: "1", Due: e.past(), Payload: []byte("second")},
			store.Task{ID: "1", Due: e.past(), State: store.StateDead},
			store.Task{Queue: "other", ID: "1", Due: e.past()},
		)
		for i, want := range []store.Outcome{store.Created, store.Exists, store.Exists, store.Created} {
			e.outcome(fmt.Sprint("item ", i), r[i], want)
		}
		if t := e.task("1"); string(t.Payload) != "first" || t.State != store.StateReady {
			e.Errorf("it is %q, %v", t.Payload, t.State)
		}
		e.counts(0, 1, 0, 0)
	}},
	{"what is wrong is refused, and changes nothing about the others", 0, func(e *env) {
		due, made := e.past(), e.past()
		for field, t := range map[string]store.Task{
			"queue":        {Queue: "-", ID: "1", Due: due},
			"id":           {ID: "a\x00b", Due: due},
			"payload":      {ID: "1", Due: due, Payload: make([]byte, e.caps.MaxPayload+1)},
			"headers":      {ID: "1", Due: due, Headers: map[string]string{"": "x"}},
			"max_attempts": {ID: "1", Due: due, MaxAttempts: -1},
			"state":        {ID: "1", Due: due, State: store.StateLeased, Worker: "w", LeaseUntil: due.Add(time.Hour)},
			"due_at":       {ID: "1"},
			"created_at":   {ID: "1", Due: due, Created: store.MinTime.Add(-1)},
			"generation":   {ID: "1", Due: due, Generation: -1},
			"failures":     {ID: "1", Due: due, Failures: -1},
			"lost":         {ID: "1", Due: due, Lost: math.MaxInt32 + 1},
		} {
			r := e.take(store.Task{ID: "before " + field, Due: due, Created: made}, t, store.Task{ID: "after " + field, Due: due, Created: made})
			e.outcome(field+", before", r[0], store.Created)
			e.outcome(field, r[1], store.Refused)
			e.inputError(field, r[1].Err, field)
			e.outcome(field+", after", r[2], store.Created)
		}
		e.counts(0, 22, 0, 0)
		if _, err := e.importer().Import(e.ctx, make([]store.Task, store.MaxBatch+1)); err == nil {
			e.Error("a batch over the limit is taken")
		}
	}},
	{"order among equal due times is that of import, also after a hold", reschedule, func(e *env) {
		due, hold := e.past(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		e.create(store.NewTask{ID: "there", Due: due})
		var want []string
		var tasks []store.Task
		var moves []store.RescheduleRequest
		for i := range 300 {
			id := fmt.Sprintf("%c%03d", 'z'-rune(i%26), i) // neither in the order of ids nor against it
			want = append(want, id)
			tasks = append(tasks, store.Task{ID: id, Due: hold})
			moves = append(moves, store.RescheduleRequest{Queue: q, ID: id, Due: due})
		}
		e.taken(tasks[:100]...)
		e.taken(tasks[100:]...)
		e.lease("there")
		e.nothing("all are held")
		// In whatever order they are let go.
		for i := len(moves) - 1; i >= 0; i -= 50 {
			r, err := e.st.Reschedule(e.ctx, moves[i-49:i+1])
			e.must(err)
			e.outcome("reschedule", r[0], store.Rescheduled)
		}
		e.create(store.NewTask{ID: "later", Due: due})
		e.sameIDs("claim", ids(e.claim(1000)), append(want, "later"))
	}},
	{"a dead one comes back by redrive, and is listed", redrive | list | get, func(e *env) {
		e.taken(
			store.Task{ID: "b", Due: e.past(), State: store.StateDead, Failures: 9, LastError: "boom"},
			store.Task{ID: "a", Due: e.past().Add(-time.Hour), State: store.StateDead, Lost: 9},
		)
		e.sameIDs("list", taskIDs(e.listAll(q, store.StateDead, 1, true)), []string{"a", "b"})
		n, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true})
		e.must(err)
		if n != 2 {
			e.Errorf("redrive moved %d, want 2", n)
		}
		e.advance(time.Millisecond)
		leases := e.claim(10)
		e.sameIDs("claim", ids(leases), []string{"b", "a"}) // in the order of import
		if l := leases[0]; l.Attempt() != 1 || l.LastError != "boom" {
			e.Errorf("attempt %d, last error %q", l.Attempt(), l.LastError)
		}
	}},
	{"what was imported may be cancelled, moved and scheduled anew", cancel | reschedule | get, func(e *env) {
		e.taken(
			store.Task{ID: "c", Due: e.past()}, store.Task{ID: "cd", Due: e.past(), State: store.StateDead},
			store.Task{ID: "m", Due: e.now().Add(time.Hour), Failures: 1}, store.Task{ID: "d", Due: e.past(), State: store.StateDead, Failures: 4},
		)
		e.cancel(store.Cancelled, "c", false)
		e.cancel(store.Cancelled, "cd", false)
		e.move(store.Rescheduled, "m", e.past())
		e.create(store.NewTask{ID: "d", Due: e.past().Add(time.Second)})
		for _, l := range e.claim(10) {
			if want := map[string]int{"m": 2, "d": 1}[l.ID]; l.Attempt() != want {
				e.Errorf("%s: attempt %d, want %d", l.ID, l.Attempt(), want)
			}
			e.ack(l)
		}
		e.counts(0, 0, 0, 0)
	}},
	{"workers who sleep are woken", 0, func(e *env) {
		e.create(store.NewTask{ID: "far", Delay: time.Hour})
		ticks, stop := e.st.Wake(q)
		defer stop()
		e.claim(1)
		for range 2 { // what the first one may still have brought
			select {
			case <-ticks:
			case <-time.After(50 * time.Millisecond):
			}
		}
		e.taken(store.Task{ID: "now", Due: e.past()})
		select {
		case <-ticks:
		case <-time.After(3 * time.Second):
			e.Error("no tick within 3 s")
		}
	}},
	{"a batch of ten thousand is carried out whole", list, func(e *env) {
		tasks := make([]store.Task, store.MaxBatch)
		want := make([]string, len(tasks))
		for i := range tasks {
			want[i] = fmt.Sprintf("%05d", i)
			tasks[i] = store.Task{ID: want[i], Due: e.past().Add(time.Duration(i) * time.Millisecond), Payload: []byte(want[i])}
		}
		e.taken(tasks...)
		e.counts(0, store.MaxBatch, 0, 0)
		e.sameIDs("list", taskIDs(e.listAll(q, store.StateReady, store.MaxList, false)), want)
	}},
	{"it outlives a crash", reopen | get, func(e *env) {
		live := store.Task{Queue: q, ID: "live", State: store.StateScheduled, Due: store.MaxTime, Created: store.MinTime, Failures: 2, Headers: map[string]string{"a": "b"}}
		dead := store.Task{Queue: q, ID: "dead", State: store.StateDead, Due: store.MinTime, Created: store.MinTime, Lost: 3, LastError: "e", Payload: []byte("p")}
		e.taken(live, dead)
		e.reopen()
		e.same("after a crash", e.task("live"), live)
		e.same("after a crash", e.task("dead"), dead)
		e.counts(1, 0, 0, 1)
	}},
}
