package storetest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

func hostilePayloads() map[string][]byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(bytes.Repeat([]byte("order "), 1000)) // a Buffer takes everything
	_ = w.Close()
	return map[string][]byte{
		"none":          nil,
		"every byte":    all,
		"gzip":          zipped.Bytes(),
		"big numbers":   []byte(`{"id":9007199254740993,"s":1970670598291982290,"u":18446744073709551615,"n":-9223372036854775808,"f":1.0,"e":1e400,"z":-0}`),
		"odd JSON":      []byte("{ \"b\" : 1 ,\n\t\"a\":[ ],\"b\":2}  "),
		"surrogate":     []byte(`"\ud800"`),
		"Chinese":       []byte("敏琳张"),
		"emoji":         []byte("😀🏳️‍🌈"),
		"broken UTF-8":  []byte("\xC3\x28\xff\xfe"),
		"a NUL":         {0},
		"line ends":     []byte("\r\n\n\r"),
		"quotes":        []byte(`'"\` + "`"),
		"null":          []byte("null"),
		"empty object":  []byte("{}"),
		"spaces":        []byte("   "),
		"base64":        []byte("AAAA=="),
		"300 kB of FF":  bytes.Repeat([]byte{0xff}, 300_000),
		"300 kB of NUL": make([]byte, 300_000),
	}
}

var payloadCases = []testCase{
	{"every byte comes back, all through a life", get | list, func(e *env) {
		for name, p := range hostilePayloads() {
			same := func(what string, got []byte) {
				e.Helper()
				if !bytes.Equal(got, p) {
					e.Fatalf("payload %q: %s: %.60q (%d bytes), want %.60q (%d bytes)", name, what, got, len(got), p, len(p))
				}
			}
			e.create(store.NewTask{ID: name, Due: e.past(), Payload: p})
			same("get", e.task(name).Payload)
			same("list", e.listAll(q, store.StateReady, 0, true)[0].Payload)
			l := e.lease(name)
			same("claim", l.Payload)
			e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Error: "boom"})
			e.advance(time.Millisecond)
			l = e.lease(name)
			same("second claim", l.Payload)
			e.settled(store.Dead, store.Settlement{Receipt: l.Receipt, Action: store.Bury})
			same("dead", e.task(name).Payload)
			if e.caps.Redrive {
				_, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true})
				e.must(err)
				e.advance(time.Millisecond)
				l = e.lease(name)
				same("after redrive", l.Payload)
				e.ack(l)
			}
		}
	}},
	{"each task its own, in one batch", 0, func(e *env) {
		past := e.past()
		var tasks []store.NewTask
		for i := range 500 {
			tasks = append(tasks, store.NewTask{
				ID: fmt.Sprint(i), Due: past, Payload: bytes.Repeat([]byte{byte(i)}, i*7%300), Headers: map[string]string{"n": fmt.Sprint(i)},
			})
		}
		e.create(tasks...)
		for i, l := range e.claim(500) {
			if !bytes.Equal(l.Payload, tasks[i].Payload) || l.Headers["n"] != l.ID || len(l.Headers) != 1 {
				e.Fatalf("task %q: payload %.20q, headers %q", l.ID, l.Payload, l.Headers)
			}
		}
	}},
	{"at most once too", 0, func(e *env) {
		e.create(store.NewTask{ID: "1", Due: e.past(), Payload: []byte("\x00\xff"), Headers: map[string]string{"a": "b"}})
		r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, AtMostOnce: true})[0]
		if len(r.Tasks) != 1 || string(r.Tasks[0].Payload) != "\x00\xff" || r.Tasks[0].Headers["a"] != "b" {
			e.Errorf("claimed %+v", r.Tasks)
		}
	}},
}
