package storetest

import (
	"fmt"
	"maps"
	"time"

	"github.com/duetime/duetime/store"
)

var hostileIDs = []string{
	"a:b", "a:b:c", "a", "b", "{a}", "{}", "}{", "{a}{b}", "1", "01", "007", "7", "-1", "0", " ", "  ", "a b", " a", "a ",
	"a/b", "/", "//", ".", "..", "../x", "%2F", "%00", "%", "*", "?[x]", "[a]", "a*", "_", "ÄÖ€", "äö€", "é", "e\u0301", "É",
	"😀", "敏琳张", "Abc", "abc", "abc ", "ABC", "null", "undefined", "true", "nil", "<script>alert(1)</script>", "'; DROP TABLE tasks; --",
	`"`, `\`, `\n`, `\x00`, "\u00a0", "\u200b", "\ufeff", "ß", "ss", "ı", "i", "I", "İ", "#", "?", "&a=b", "+", "=", "$1", "a\u2028b",
	"\U0010FFFF", "\uFFFD", "1e3", "1000", "0x10", "16", "９", "9",
}

var hostileCases = []testCase{
	{"ids of every kind live a whole life, each its own", unique | get | list | cancel | reschedule, func(e *env) {
		past := e.past()
		var tasks []store.NewTask
		for i, id := range hostileIDs {
			tasks = append(tasks, store.NewTask{ID: id, Payload: []byte(fmt.Sprint(i)), Delay: time.Hour})
		}
		e.create(tasks...)
		e.counts(int64(len(tasks)), 0, 0, 0)
		for i, id := range hostileIDs {
			t := e.task(id)
			if t.ID != id || string(t.Payload) != fmt.Sprint(i) {
				e.Errorf("get %q: task %q, payload %q, want %d", id, t.ID, t.Payload, i)
			}
			e.move(store.Rescheduled, id, past.Add(time.Duration(i)*time.Second))
		}
		e.sameIDs("list", taskIDs(e.listAll(q, store.StateReady, 7, false)), hostileIDs)
		for i, id := range hostileIDs {
			l := e.lease(id)
			if string(l.Payload) != fmt.Sprint(i) {
				e.Errorf("claim %q: payload %q, want %d", id, l.Payload, i)
			}
			switch i % 3 {
			case 0:
				e.ack(l)
			case 1:
				e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Bury})
			case 2:
				e.cancel(store.Cancelled, id, true)
			}
		}
		for i, id := range hostileIDs {
			if i%3 == 1 {
				e.state(id, store.StateDead)
				if e.caps.Redrive {
					n, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, IDs: []string{id}})
					if err != nil || n != 1 {
						e.Errorf("redrive %q: %d, %v", id, n, err)
					}
				}
				e.cancel(store.Cancelled, id, false)
			}
			e.gone(id)
		}
		e.counts(0, 0, 0, 0)
	}},
	{"no pattern in an id matches another", unique | cancel, func(e *env) {
		e.ready("abc", "abd", "a", "*")
		for _, id := range []string{"a*", "?", "ab%", "ab_", "[a]", "abc ", "ABC", "abc\u200b"} {
			e.cancel(store.NotFound, id, true)
		}
		e.cancel(store.Cancelled, "*", false)
		e.counts(0, 3, 0, 0)
	}},
	{"queue names that look like keys, patterns and numbers", settings, func(e *env) {
		names := []string{"a", "A", "a:", "a:b", "a:b:c", "a.b", "a_b", "a-b", "0", "00", "1", "1.0", "null", "default", "dead", "queues", "settings"}
		for i, name := range names {
			e.create(store.NewTask{Queue: name, ID: "1", Payload: []byte(name), Due: e.past()})
			s, err := e.st.Settings(e.ctx, name)
			e.must(err)
			s.MaxAttempts = i + 1
			_, err = e.st.PutSettings(e.ctx, name, s)
			e.must(err)
		}
		for i, name := range names {
			s, err := e.st.Settings(e.ctx, name)
			e.must(err)
			if s.MaxAttempts != i+1 {
				e.Errorf("queue %q has the settings of %d, want %d", name, s.MaxAttempts, i+1)
			}
			r := e.claimResult(name, 10)
			if len(r.Tasks) != 1 || string(r.Tasks[0].Payload) != name {
				e.Fatalf("queue %q: claimed %d tasks", name, len(r.Tasks))
			}
			e.ack(r.Tasks[0])
		}
	}},
	{"headers of every kind", get, func(e *env) {
		h := map[string]string{"traceparent": "00-4bf9-01", "A": "1", "a": "2", "": "", "ключ": "значение", "a:b": "{}", " ": " ", "empty": "", "q\"": "\\"}
		delete(h, "")
		e.create(store.NewTask{ID: "1", Due: e.past(), Headers: h})
		if got := e.task("1").Headers; !maps.Equal(got, h) {
			e.Errorf("get: %q, want %q", got, h)
		}
		if got := e.lease("1").Headers; !maps.Equal(got, h) {
			e.Errorf("claim: %q, want %q", got, h)
		}
	}},
}
