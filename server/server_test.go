package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// env is a server on a real socket.
type env struct {
	t      *testing.T
	server *Server
	store  store.Store
	url    string
	log    *bytes.Buffer // read it after stop
	stop   func() error  // stops gracefully
}

// start serves a store, a new memstore where st is nil, until the test ends.
func start(t *testing.T, st store.Store, opts *Options) *env {
	t.Helper()
	if st == nil {
		st = memstore.New(nil)
		t.Cleanup(func() { st.Close() })
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	log := new(bytes.Buffer)
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	srv, err := New(st, &o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	stopped := false
	e := &env{t: t, server: srv, store: st, url: "http://" + l.Addr().String(), log: log}
	e.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-served
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return e
}

// answer is what a call got.
type answer struct {
	status int
	header http.Header
	raw    string
	doc    map[string]any
}

func (e *env) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	e.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.url+path, r)
	if err != nil {
		e.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

func (e *env) do(method, path, body string, headers ...string) answer {
	e.t.Helper()
	resp, err := http.DefaultClient.Do(e.request(e.t.Context(), method, path, body, headers...))
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.doc)
	return a
}

// want does a call that must get a status.
func (e *env) want(status int, method, path, body string, headers ...string) answer {
	e.t.Helper()
	a := e.do(method, path, body, headers...)
	if a.status != status {
		e.t.Fatalf("%s %s %s: status %d, want %d: %s", method, path, body, a.status, status, a.raw)
	}
	return a
}

func (a answer) str(name string) string { s, _ := a.doc[name].(string); return s }

// task is the n-th of an answer's tasks.
func (a answer) task(t *testing.T, n int) map[string]any {
	t.Helper()
	tasks, _ := a.doc["tasks"].([]any)
	if n >= len(tasks) {
		t.Fatalf("%d tasks, want more than %d: %s", len(tasks), n, a.raw)
	}
	return tasks[n].(map[string]any)
}

// eventually polls a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

func TestLifeOfATask(t *testing.T) {
	e := start(t, nil, nil)
	a := e.want(201, "POST", "/v1/queues/orders/tasks", `{"id":"order-1","payload":{"a": [1, 9007199254740993]},"delay":"1h","headers":{"trace":"x"},"max_attempts":7}`)
	for name, want := range map[string]any{
		"outcome": "created", "queue": "orders", "id": "order-1", "state": "scheduled",
		"failures": 0.0, "lost": 0.0, "max_attempts": 7.0, "last_error": "",
	} {
		if a.doc[name] != want {
			t.Errorf("%s is %v, want %v", name, a.doc[name], want)
		}
	}
	if !strings.Contains(a.raw, `"payload":{"a":[1,9007199254740993]}`) {
		t.Errorf("payload: %s", a.raw)
	}
	due, err := time.Parse("2006-01-02T15:04:05.000Z", a.str("due_at"))
	if err != nil || time.Until(due) < 59*time.Minute || time.Until(due) > time.Hour+time.Millisecond {
		t.Errorf("due_at %q: %v", a.str("due_at"), err)
	}
	if a = e.want(200, "POST", "/v1/queues/orders/tasks", `{"id":"order-1","delay":"2h"}`); a.str("outcome") != "exists" || a.doc["max_attempts"] != 7.0 {
		t.Errorf("repeated: %s", a.raw)
	}
	if a = e.want(200, "POST", "/v1/queues/orders/tasks", `{"id":"order-1","delay":"2h","on_conflict":"replace"}`); a.str("outcome") != "replaced" {
		t.Errorf("replaced: %s", a.raw)
	}
	e.want(200, "PATCH", "/v1/queues/orders/tasks/order-1", `{"due_at":"2020-01-01T00:00:00+08:00"}`)
	if a = e.want(200, "GET", "/v1/queues/orders/tasks/order-1", ""); a.str("due_at") != "2019-12-31T16:00:00.000Z" || a.str("state") != "ready" {
		t.Errorf("rescheduled: %s", a.raw)
	}
	a = e.want(200, "POST", "/v1/queues/orders/claim", `{"lease":"30s","worker":"me"}`)
	task := a.task(t, 0)
	if task["attempt"] != 1.0 || task["worker"] != "me" || task["state"] != "leased" || task["lease_until"] == nil || a.doc["now"] == nil {
		t.Errorf("claimed: %s", a.raw)
	}
	e.want(409, "DELETE", "/v1/queues/orders/tasks/order-1", "")
	e.want(409, "PATCH", "/v1/queues/orders/tasks/order-1", `{"delay":"1s"}`)
	body, _ := json.Marshal(map[string]any{"receipts": []any{task["receipt"]}})
	if a = e.want(200, "POST", "/v1/ack", string(body)); a.raw != "{\"outcomes\":[\"acked\"]}\n" {
		t.Errorf("ack: %s", a.raw)
	}
	if a = e.want(200, "POST", "/v1/ack", string(body)); a.raw != "{\"outcomes\":[\"stale\"]}\n" {
		t.Errorf("second ack: %s", a.raw)
	}
	e.want(404, "GET", "/v1/queues/orders/tasks/order-1", "")
	e.want(404, "DELETE", "/v1/queues/orders/tasks/order-1", "")
	e.want(404, "PATCH", "/v1/queues/orders/tasks/order-1", `{"delay":"1s"}`)
}

func TestIDIsMadeUp(t *testing.T) {
	e := start(t, nil, nil)
	a := e.want(201, "POST", "/v1/queues/q/tasks", `{"delay":"1h"}`)
	b := e.want(201, "POST", "/v1/queues/q/tasks", `{"delay":"1h"}`)
	if len(a.str("id")) != 36 || a.str("id") == b.str("id") {
		t.Errorf("ids %q and %q", a.str("id"), b.str("id"))
	}
}

func TestCancel(t *testing.T) {
	e := start(t, nil, nil)
	e.want(201, "POST", "/v1/queues/q/tasks", `{"id":"a"}`)
	if a := e.want(200, "DELETE", "/v1/queues/q/tasks/a", ""); a.str("outcome") != "cancelled" {
		t.Error(a.raw)
	}
	e.want(201, "POST", "/v1/queues/q/tasks", `{"id":"a"}`)
	receipt := e.want(200, "POST", "/v1/queues/q/claim", `{"wait":"10s"}`).task(t, 0)["receipt"].(string)
	e.want(200, "DELETE", "/v1/queues/q/tasks/a?force=true", "")
	if a := e.want(200, "POST", "/v1/ack", `{"receipts":["`+receipt+`"]}`); !strings.Contains(a.raw, "stale") {
		t.Error(a.raw)
	}
}

func TestSettle(t *testing.T) {
	e := start(t, nil, nil)
	claim := func() string {
		t.Helper()
		return e.want(200, "POST", "/v1/queues/q/claim", `{"wait":"10s"}`).task(t, 0)["receipt"].(string)
	}
	e.want(201, "POST", "/v1/queues/q/tasks", `{"id":"a"}`)
	receipt := "" // of the lease that is out
	for _, c := range []struct{ call, extra, outcome, state string }{
		{"extend", `,"lease":"10m"`, "extended", "leased"},
		{"extend", ``, "extended", "leased"},
		{"release", ``, "released", "ready"},
		{"retry", `,"delay":"0s","error":"no luck"`, "retrying", "ready"},
		{"snooze", `,"delay":"PT0S"`, "snoozed", "ready"},
		{"bury", `,"error":"bad address"`, "dead", "dead"},
	} {
		if receipt == "" {
			receipt = claim()
		}
		a := e.want(200, "POST", "/v1/"+c.call, `{"receipts":["`+receipt+`","nonsense"]`+c.extra+`}`)
		outcomes := a.doc["outcomes"].([]any)
		if outcomes[0] != c.outcome || outcomes[1] != "refused" || !strings.Contains(a.raw, `"errors":[{"index":1,"error":{"code":"input","field":"receipt"`) {
			t.Errorf("%s: %s", c.call, a.raw)
		}
		eventually(t, "after "+c.call+" the task is "+c.state, func() bool {
			return e.want(200, "GET", "/v1/queues/q/tasks/a", "").str("state") == c.state
		})
		if c.call != "extend" {
			receipt = ""
		}
	}
	if a := e.want(200, "GET", "/v1/queues/q/tasks/a", ""); a.str("last_error") != "bad address" || a.doc["failures"] != 1.0 {
		t.Error(a.raw)
	}
	if a := e.want(200, "POST", "/v1/queues/q/redrive", `{"all":true}`); a.doc["redriven"] != 1.0 {
		t.Error(a.raw)
	}
	receipt = claim()
	e.want(200, "POST", "/v1/retry", `{"receipts":["`+receipt+`"]}`) // as the backoff says
	if a := e.want(200, "GET", "/v1/queues/q/tasks/a", ""); a.doc["failures"] != 1.0 {
		t.Error(a.raw)
	}
}

func (e *env) roundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}
