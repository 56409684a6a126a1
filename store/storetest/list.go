package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

var listCases = []testCase{
	{"each state has its own tasks, by due time, then by scheduling", list, func(e *env) {
		past := e.past()
		e.die("dead2", "boom")
		e.die("dead1", "boom")
		e.create(store.NewTask{ID: "l2", Due: past.Add(-time.Hour)}, store.NewTask{ID: "l1", Due: past.Add(-2 * time.Hour)})
		if got := e.claim(2); len(got) != 2 {
			e.Fatalf("claimed %d", len(got))
		}
		e.create(store.NewTask{ID: "r2", Due: past.Add(time.Second)}, store.NewTask{ID: "r1", Due: past}, store.NewTask{ID: "r0", Due: past})
		e.create(store.NewTask{ID: "s2", Delay: 2 * time.Hour}, store.NewTask{ID: "s1", Delay: time.Hour}, store.NewTask{ID: "s3", Delay: 3 * time.Hour})
		for state, want := range map[store.State][]string{
			store.StateDead:      {"dead2", "dead1"},
			store.StateLeased:    {"l1", "l2"},
			store.StateReady:     {"r1", "r0", "r2"},
			store.StateScheduled: {"s1", "s2", "s3"},
		} {
			for _, limit := range []int{0, 1, 2, 3} {
				e.sameIDs(fmt.Sprintf("list of %v by %d", state, limit), taskIDs(e.listAll(q, state, limit, false)), want)
			}
		}
	}},
	{"shows what get shows, with payloads or without", list | get, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour, Payload: []byte("p"), Headers: map[string]string{"a": "b"}})
		want := e.task("1")
		e.same("list with payloads", e.listAll(q, store.StateScheduled, 0, true)[0], want)
		want.Payload, want.Headers = nil, nil
		e.same("list without", e.listAll(q, store.StateScheduled, 0, false)[0], want)
	}},
	{"pages of a hundred unless told, and up to a thousand", list, func(e *env) {
		past := e.past()
		var tasks []store.NewTask
		var want []string
		for i := range 2500 {
			want = append(want, fmt.Sprintf("%04d", i))
			tasks = append(tasks, store.NewTask{ID: want[i], Due: past.Add(time.Duration(i/10) * time.Millisecond)}) // ten at each instant
		}
		e.create(tasks...)
		page, err := e.st.List(e.ctx, store.ListRequest{Queue: q, State: store.StateReady})
		e.must(err)
		if len(page.Tasks) != 100 || page.Cursor == "" {
			e.Errorf("first page: %d tasks, cursor %q", len(page.Tasks), page.Cursor)
		}
		for _, limit := range []int{7, 100, 1000} {
			e.sameIDs("list", taskIDs(e.listAll(q, store.StateReady, limit, false)), want)
		}
	}},
	{"the last page has no cursor", list, func(e *env) {
		e.ready("1", "2")
		for limit, want := range map[int]bool{1: true, 2: false, 3: false} {
			page, err := e.st.List(e.ctx, store.ListRequest{Queue: q, State: store.StateReady, Limit: limit})
			e.must(err)
			if (page.Cursor != "") != want {
				e.Errorf("limit %d of 2 tasks: cursor %q", limit, page.Cursor)
			}
		}
	}},
	{"nothing, and no queue, are an empty page", list, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		for _, queue := range []string{q, "absent"} {
			page, err := e.st.List(e.ctx, store.ListRequest{Queue: queue, State: store.StateDead})
			e.must(err)
			if len(page.Tasks) != 0 || page.Cursor != "" {
				e.Errorf("queue %q: %d tasks, cursor %q", queue, len(page.Tasks), page.Cursor)
			}
		}
		queues, err := e.st.Queues(e.ctx)
		e.must(err)
		if !slices.Equal(queues, []string{q}) {
			e.Errorf("queues %q, want only %q", queues, q)
		}
	}},
	{"what stays as it is is on one page, while others come and go", list | cancel | reschedule, func(e *env) {
		start := e.now().Add(time.Hour).Truncate(time.Second)
		due := func(i int) time.Time { return start.Add(time.Duration(i/3) * time.Second) }
		var tasks []store.NewTask
		for i := range 300 {
			tasks = append(tasks, store.NewTask{ID: fmt.Sprintf("%03d", i), Due: due(i)})
		}
		e.create(tasks...)
		seen := make(map[string]int)
		r := store.ListRequest{Queue: q, State: store.StateScheduled, Limit: 10}
		for n := 0; ; n++ {
			page, err := e.st.List(e.ctx, r)
			e.must(err)
			for _, t := range page.Tasks {
				seen[t.ID]++
			}
			if r.Cursor = page.Cursor; r.Cursor == "" {
				break
			}
			if n > 200 {
				e.Fatal("pages do not end")
			}
			// Tasks i with i%3 == 0 stay. The last of the page may go, new
			// ones come before and after, others move across the cursor.
			if last := page.Tasks[len(page.Tasks)-1].ID; last[0] != 'n' {
				var i int
				fmt.Sscan(trimZeros(last), &i)
				if i%3 != 0 {
					e.cancel(store.Cancelled, last, false)
				}
			}
			if n < 50 {
				e.create(
					store.NewTask{ID: fmt.Sprint("new before ", n), Due: start},
					store.NewTask{ID: fmt.Sprint("new after ", n), Due: due(299)},
				)
				if id := fmt.Sprintf("%03d", 6*n+1); e.listable(id) {
					e.move(store.Rescheduled, id, due(299-n))
				}
			}
		}
		for i := 0; i < 300; i += 3 {
			if id := fmt.Sprintf("%03d", i); seen[id] != 1 {
				e.Errorf("task %s, which nobody touched, was on %d pages", id, seen[id])
			}
		}
	}},
	{"a damaged cursor is refused", list, func(e *env) {
		e.ready("1", "2", "3")
		page, err := e.st.List(e.ctx, store.ListRequest{Queue: q, State: store.StateReady, Limit: 1})
		e.must(err)
		c := []byte(page.Cursor)
		c[len(c)/2] ^= 1
		for _, cursor := range []string{string(c), page.Cursor[:len(page.Cursor)-2], page.Cursor + "AAAA", " ", "0"} {
			_, err := e.st.List(e.ctx, store.ListRequest{Queue: q, State: store.StateReady, Cursor: cursor})
			e.inputError(fmt.Sprintf("cursor %q", cursor), err, "cursor")
		}
	}},
}

// listable says whether a task can still be moved in the paging test.
func (e *env) listable(id string) bool {
	if !e.caps.Get {
		return false
	}
	t := e.lookup(q, id)
	return t != nil && t.State == store.StateScheduled
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}
