package storetest

import (
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var claimCases = []testCase{
	{"never before it is due, and from then on", 0, func(e *env) {
		r := e.create(store.NewTask{ID: "1", Delay: e.short(100 * time.Millisecond)})[0]
		e.nothing("it is due in 100 ms")
		if e.in.Advance != nil {
			e.advance(r.Due.Sub(e.now()) - time.Millisecond)
			e.nothing("it is due in a millisecond")
			e.advance(time.Millisecond - 1)
			e.nothing("it is due in a nanosecond")
		}
		e.advanceTo(r.Due)
		l := e.lease("1")
		if e.in.Advance != nil && !l.ClaimedAt.Equal(r.Due) {
			e.Errorf("claimed at %v, want the moment it was due, %v", l.ClaimedAt, r.Due)
		}
	}},
	{"each of a thousand odd milliseconds in an idle queue", fakeClock, func(e *env) {
		start := e.now()
		offsets := []int{1000, 1001, 1499, 1511, 1999}
		for i := range 200 {
			offsets = append(offsets, 2000+i*7+i*i%5)
		}
		for i, ms := range offsets {
			e.create(store.NewTask{ID: fmt.Sprint(i), Due: start.Add(time.Duration(ms) * time.Millisecond)})
		}
		for i, ms := range offsets {
			e.advance(start.Add(time.Duration(ms)*time.Millisecond - 1).Sub(e.now()))
			e.nothing("a nanosecond before " + fmt.Sprint(i))
			e.advance(1)
			e.lease(fmt.Sprint(i))
		}
	}},
	{"a claimed task says all about itself and its lease", get, func(e *env) {
		n := store.NewTask{ID: "1", Payload: []byte("p"), Headers: map[string]string{"a": "b"}, Due: e.past(), MaxAttempts: 4}
		created := e.create(n)[0]
		before := e.now()
		l := e.lease("1")
		e.same("claim", l.Task, store.Task{
			Queue: q, ID: "1", State: store.StateLeased, Payload: n.Payload, Headers: n.Headers, Due: n.Due,
			Created: created.At, MaxAttempts: 4, Worker: "w", LeaseUntil: l.LeaseUntil,
		})
		if l.Attempt() != 1 {
			e.Errorf("attempt %d, want 1", l.Attempt())
		}
		if l.ClaimedAt.Before(before) || l.ClaimedAt.After(e.now()) {
			e.Errorf("claimed at %v, not between %v and now", l.ClaimedAt, before)
		}
		e.between("end of lease", l.LeaseUntil, before, e.now(), time.Minute)
		e.same("get", e.task("1"), l.Task)
		e.counts(0, 0, 1, 0)
	}},
	{"no more than was asked for", 0, func(e *env) {
		e.ready("1", "2", "3", "4", "5")
		e.sameIDs("claim of 2", ids(e.claim(2)), []string{"1", "2"})
		e.sameIDs("claim of 2", ids(e.claim(2)), []string{"3", "4"})
		e.sameIDs("claim of 2", ids(e.claim(2)), []string{"5"})
		e.nothing("all are claimed")
	}},
	{"a batch of claims shares out what is there", 0, func(e *env) {
		e.ready("1", "2", "3", "4", "5")
		e.create(store.NewTask{Queue: "other", ID: "x", Due: e.past()})
		r := e.claimRequests(
			store.ClaimRequest{Queue: q, Max: 2, Worker: "a"},
			store.ClaimRequest{Queue: "other", Max: 9, Worker: "b"},
			store.ClaimRequest{Queue: q, Max: 1, Worker: "c"},
			store.ClaimRequest{Queue: "absent", Max: 1, Worker: "d"},
			store.ClaimRequest{Queue: q, Max: 9, Worker: "e"},
			store.ClaimRequest{Queue: q, Max: 9, Worker: "f"},
		)
		for i, want := range [][]string{{"1", "2"}, {"x"}, {"3"}, {}, {"4", "5"}, {}} {
			e.must(r[i].Err)
			e.sameIDs(fmt.Sprint("request ", i), ids(r[i].Tasks), want)
			for _, l := range r[i].Tasks {
				if want := string(rune('a' + i)); l.Worker != want {
					e.Errorf("task %q: worker %q, want %q", l.ID, l.Worker, want)
				}
			}
		}
	}},
	{"nothing is no error and creates no queue", 0, func(e *env) {
		r := e.claimResult("absent", 10)
		if len(r.Tasks) != 0 || !r.Next.IsZero() || r.Now.IsZero() {
			e.Errorf("claim of an absent queue: %d tasks, next %v, now %v", len(r.Tasks), r.Next, r.Now)
		}
		queues, err := e.st.Queues(e.ctx)
		e.must(err)
		if len(queues) != 0 {
			e.Errorf("a claim created queues %q", queues)
		}
	}},
	{"at most once removes as it hands out", 0, func(e *env) {
		e.ready("1", "2")
		r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, AtMostOnce: true})[0]
		e.must(r.Err)
		e.sameIDs("claim", ids(r.Tasks), []string{"1"})
		e.gone("1")
		e.counts(0, 1, 0, 0)
		e.advance(e.short(200 * time.Millisecond))
		e.sameIDs("the next", ids(e.claim(10)), []string{"2"})
	}},
	{"an answer is bounded in bytes and the rest comes next", 0, func(e *env) {
		if e.caps.MaxPayload < 1<<20 {
			e.Skip("payloads are too small to reach the bound")
		}
		past := e.past()
		const n = 40 // of 1 MiB: more than store.MaxClaimBytes
		var want []string
		for i := range n {
			id := fmt.Sprintf("%02d", i)
			payload := make([]byte, 1<<20)
			payload[0] = byte(i)
			e.create(store.NewTask{ID: id, Payload: payload, Due: past.Add(time.Duration(i) * time.Second)})
			want = append(want, id)
		}
		var got []string
		for calls := 0; len(got) < n; calls++ {
			r := e.claimResult(q, n)
			bytes := 0
			for _, l := range r.Tasks {
				bytes += len(l.Payload)
				if int(l.Payload[0]) != len(got) {
					e.Fatalf("task %q has the payload of %d", l.ID, l.Payload[0])
				}
				got = append(got, l.ID)
			}
			if len(r.Tasks) == 0 || bytes > store.MaxClaimBytes {
				e.Fatalf("claim %d got %d tasks of %d bytes together, want at least one and at most %d bytes", calls, len(r.Tasks), bytes, store.MaxClaimBytes)
			}
			if len(got) < n && (r.Next.IsZero() || r.Next.After(r.Now)) {
				e.Fatalf("claim %d left %d ready and says next is %v, now %v", calls, n-len(got), r.Next, r.Now)
			}
		}
		e.sameIDs("claims", got, want)
	}},
	{"a claim gets all that is due at the same instant", 0, func(e *env) {
		past := e.past()
		var tasks []store.NewTask
		for i := range 3000 {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprintf("%04d", i), Due: past})
		}
		e.create(tasks...)
		var got []string
		for range 3 {
			got = append(got, ids(e.claim(1000))...)
		}
		for i, id := range got {
			if id != tasks[i].ID {
				e.Fatalf("number %d is %q, want %q", i, id, tasks[i].ID)
			}
		}
		if len(got) != len(tasks) {
			e.Fatalf("got %d of %d", len(got), len(tasks))
		}
	}},
}
