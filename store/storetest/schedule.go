package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/duetime/duetime/store"
)

var scheduleCases = []testCase{
	{"a created task is as it was given", get, func(e *env) {
		before := e.now()
		due := before.Add(time.Hour).Truncate(time.Millisecond)
		n := store.NewTask{Queue: q, ID: "1", Payload: []byte("order 1"), Headers: map[string]string{"kind": "timeout"}, Due: due, MaxAttempts: 7}
		r := e.create(n)[0]
		if !r.Due.Equal(due) {
			e.Errorf("created says it is due %v, want %v", r.Due, due)
		}
		e.between("created", r.At, before, e.now(), 0)
		e.same("get", e.task("1"), store.Task{
			Queue: q, ID: "1", State: store.StateScheduled, Payload: n.Payload, Headers: n.Headers,
			Due: due, Created: r.At, MaxAttempts: 7,
		})
	}},
	{"a delay counts from the store's clock", 0, func(e *env) {
		for i, d := range []time.Duration{0, time.Millisecond, 1500 * time.Millisecond, time.Hour, 365 * 24 * time.Hour} {
			before := e.now()
			r := e.create(store.NewTask{ID: fmt.Sprint(i), Delay: d})[0]
			if d == 0 {
				e.dueNow("due after nothing", r.Due, before, e.now())
				continue
			}
			e.between(fmt.Sprintf("due after %v", d), r.Due, before, e.now(), d)
		}
	}},
	{"without due time and delay it is due now", 0, func(e *env) {
		before := e.now()
		r := e.create(store.NewTask{ID: "1"})[0]
		e.dueNow("due", r.Due, before, e.now())
		e.lease("1") // at once
	}},
	{"a due time in the past means now and stays as it was", 0, func(e *env) {
		for _, due := range []time.Time{e.past(), time.Date(1999, 12, 31, 23, 59, 59, 999e6, time.UTC), store.MinTime} {
			id := due.String()
			if r := e.create(store.NewTask{ID: id, Due: due})[0]; !r.Due.Equal(due) {
				e.Errorf("created says it is due %v, want %v", r.Due, due)
			}
			l := e.lease(id)
			if !l.Due.Equal(due) {
				e.Errorf("claimed with due %v, want %v", l.Due, due)
			}
			e.ack(l)
		}
	}},
	{"a due time in another zone is the same instant", 0, func(e *env) {
		due := e.now().Add(time.Hour).Truncate(time.Second)
		r := e.create(store.NewTask{ID: "1", Due: due.In(time.FixedZone("UTC+8", 8*3600))})[0]
		if !r.Due.Equal(due) {
			e.Errorf("due %v, want %v", r.Due, due)
		}
	}},
	{"what is finer than a millisecond is rounded up", 0, func(e *env) {
		base := e.now().Add(time.Hour).Truncate(time.Second)
		for i, c := range []struct{ fine, want time.Duration }{
			{0, 0},
			{1, time.Millisecond},
			{499 * time.Microsecond, time.Millisecond},
			{999_999, time.Millisecond},
			{time.Millisecond, time.Millisecond},
			{1500 * time.Microsecond, 2 * time.Millisecond},
			{999*time.Millisecond + 1, time.Second},
		} {
			r := e.create(store.NewTask{ID: fmt.Sprint(i), Due: base.Add(c.fine)})[0]
			if got := r.Due.Sub(base); got != c.want {
				e.Errorf("due %v after the second became %v, want %v", c.fine, got, c.want)
			}
		}
		if e.in.Advance != nil {
			e.advance(300 * time.Microsecond)
			now := e.now()
			r := e.create(store.NewTask{ID: "delay", Delay: 500 * time.Microsecond})[0]
			if got := r.Due.Sub(now.Truncate(time.Millisecond)); got != time.Millisecond {
				e.Errorf("due 0.5 ms after 0.3 ms past became %v, want 1ms", got)
			}
		}
	}},
	{"far and huge delays never wrap round", 0, func(e *env) {
		var far []string
		for _, d := range []time.Duration{
			2147483647 * time.Millisecond, 2147483648 * time.Millisecond, 4294967295 * time.Millisecond,
			4294967296 * time.Millisecond, 31536000000 * time.Millisecond, 9223372036 * time.Second, math.MaxInt64,
		} {
			before := e.now()
			id := d.String()
			r := e.create(store.NewTask{ID: id, Delay: d})[0]
			e.between("due after "+id, r.Due, before, e.now(), d)
			far = append(far, id)
		}
		e.nothing("all are due in weeks or more")
		if e.caps.List {
			e.sameIDs("list", taskIDs(e.listAll(q, store.StateScheduled, 0, false)), far)
		}
	}},
	{"dates past 2038 and up to the year 9999 are exact and in order", list, func(e *env) {
		var want []string
		for _, text := range []string{
			"2038-01-19T03:14:07Z", "2038-01-19T03:14:08Z", "2038-02-01T00:00:00Z", "2100-01-01T00:00:00Z",
			"2106-02-07T06:28:16Z", "2500-01-01T00:00:00.001Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999Z",
		} {
			due, err := time.Parse(time.RFC3339, text)
			e.must(err)
			if r := e.create(store.NewTask{ID: text, Due: due})[0]; !r.Due.Equal(due) {
				e.Errorf("due %v, want %v", r.Due, due)
			}
			want = append(want, text)
		}
		tasks := e.listAll(q, store.StateScheduled, 3, false)
		e.sameIDs("list", taskIDs(tasks), want)
		for _, t := range tasks {
			if got := t.Due.Format(time.RFC3339Nano); got != t.ID {
				e.Errorf("due %s, want %s", got, t.ID)
			}
		}
		e.nothing("all are due in years")
	}},
	{"an empty batch does nothing", 0, func(e *env) {
		if r := e.schedule(); len(r) != 0 {
			e.Errorf("schedule of nothing: %v", r)
		}
		if r := e.settle(); len(r) != 0 {
			e.Errorf("settle of nothing: %v", r)
		}
		if r := e.claimRequests(); len(r) != 0 {
			e.Errorf("claim of nothing: %v", r)
		}
	}},
	{"a refused item changes nothing about the others", 0, func(e *env) {
		past := e.past()
		r := e.schedule(
			store.NewTask{Queue: q, ID: "a", Due: past},
			store.NewTask{Queue: q, ID: "bad\x00", Due: past},
			store.NewTask{Queue: q, ID: "b", Due: past},
			store.NewTask{Queue: q, ID: "c", Delay: -1},
			store.NewTask{Queue: "", ID: "d"},
			store.NewTask{Queue: q, ID: "e", Due: past},
		)
		for i, want := range []store.Outcome{store.Created, store.Refused, store.Created, store.Refused, store.Refused, store.Created} {
			e.outcome(fmt.Sprintf("item %d", i), r[i], want)
		}
		e.inputError("item 1", r[1].Err, "id")
		e.inputError("item 3", r[3].Err, "delay")
		e.inputError("item 4", r[4].Err, "queue")
		e.sameIDs("claim", ids(e.claim(10)), []string{"a", "b", "e"})
	}},
	{"a batch of ten thousand is carried out whole", 0, func(e *env) {
		past := e.past()
		tasks := make([]store.NewTask, store.MaxBatch)
		want := make([]string, len(tasks))
		for i := range tasks {
			want[i] = fmt.Sprintf("%05d", i)
			tasks[i] = store.NewTask{Queue: q, ID: want[i], Due: past.Add(time.Duration(i) * time.Millisecond), Payload: []byte(want[i])}
		}
		e.create(tasks...)
		e.counts(0, store.MaxBatch, 0, 0)
		var got []string
		var settle []store.Settlement
		for len(got) < len(want) {
			leases := e.claim(store.MaxBatch)
			if len(leases) == 0 {
				e.Fatalf("claims stopped after %d of %d tasks", len(got), len(want))
			}
			for _, l := range leases {
				got = append(got, l.ID)
				if string(l.Payload) != l.ID {
					e.Fatalf("task %q has the payload of %q", l.ID, l.Payload)
				}
				settle = append(settle, store.Settlement{Receipt: l.Receipt, Action: store.Ack})
			}
		}
		e.sameIDs("claims", got, want)
		for i, r := range e.settle(settle...) {
			e.outcome(want[i], r, store.Acked)
		}
		e.counts(0, 0, 0, 0)
	}},
	{"what was given and what was returned belong to the caller", get, func(e *env) {
		payload, headers := []byte("payload"), map[string]string{"a": "b"}
		e.create(store.NewTask{ID: "1", Payload: payload, Headers: headers, Due: e.past()})
		spoil := func(p []byte, h map[string]string) {
			for i := range p {
				p[i] = 'X'
			}
			h["a"], h["new"] = "spoilt", "spoilt"
		}
		good := func(what string, p []byte, h map[string]string) {
			e.Helper()
			if !bytes.Equal(p, []byte("payload")) || !maps.Equal(h, map[string]string{"a": "b"}) {
				e.Fatalf("%s: payload %q, headers %q: changed from outside", what, p, h)
			}
		}
		spoil(payload, headers)
		for range 2 {
			t := e.task("1")
			good("get", t.Payload, t.Headers)
			spoil(t.Payload, t.Headers)
		}
		exists := e.schedule(store.NewTask{Queue: q, ID: "1"})[0]
		e.outcome("schedule again", exists, store.Exists)
		good("exists", exists.Task.Payload, exists.Task.Headers)
		spoil(exists.Task.Payload, exists.Task.Headers)
		l := e.lease("1")
		good("claim", l.Payload, l.Headers)
		spoil(l.Payload, l.Headers)
		if e.caps.List {
			t := e.listAll(q, store.StateLeased, 0, true)[0]
			good("list", t.Payload, t.Headers)
			spoil(t.Payload, t.Headers)
		}
		t := e.task("1")
		good("get at last", t.Payload, t.Headers)
	}},
}

// dueNow says that got is a moment from before to after, rounded down to the
// millisecond.
func (e *env) dueNow(what string, got, before, after time.Time) {
	e.Helper()
	if low := before.Truncate(time.Millisecond); got.Before(low) || got.After(after) {
		e.Errorf("%s: %v, want %v to %v", what, got, low, after)
	}
}

// between says that got is d after some moment from before to after, rounded up
// to the millisecond.
func (e *env) between(what string, got, before, after time.Time, d time.Duration) {
	e.Helper()
	if low, high := store.CeilMilli(before.Add(d)), store.CeilMilli(after.Add(d)); got.Before(low) || got.After(high) {
		e.Errorf("%s: %v, want %v to %v", what, got, low, high)
	}
}
