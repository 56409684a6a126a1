package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// broken fails while it is told to.
type broken struct {
	store.Store
	err atomic.Pointer[error]
}

func (b *broken) fail(err error) { b.err.Store(&err) }

func (b *broken) Claim(ctx context.Context, r []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := b.err.Load(); err != nil && *err != nil {
		return nil, *err
	}
	return b.Store.Claim(ctx, r)
}

func (b *broken) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if err := b.err.Load(); err != nil && *err != nil {
		return nil, *err
	}
	return b.Store.Schedule(ctx, tasks)
}

func TestReadyGoesRedAndBack(t *testing.T) {
	inner := memstore.New(nil)
	t.Cleanup(func() { inner.Close() })
	st := &broken{Store: inner}
	e := start(t, st, nil)
	eventually(t, "ready", func() bool { return e.do("GET", "/readyz", "").status == 200 })
	wait := e.background(t.Context(), "/v1/queues/q/claim", `{"wait":"60s"}`)
	eventually(t, "the claim waits", func() bool { return e.waiting() == 1 })

	st.fail(errors.New("dial tcp 10.0.0.7:3306: password hunter2 refused"))
	failed := time.Now()
	var a answer
	eventually(t, "not ready", func() bool { a = e.do("GET", "/readyz", ""); return a.status == 503 })
	if took := time.Since(failed); took < unreadyAfter-probeEvery-time.Second || took > unreadyAfter+3*time.Second {
		t.Errorf("red after %v, want about %v", took, unreadyAfter)
	}
	eventually(t, "both are red", func() bool {
		a = e.do("GET", "/readyz", "")
		s, d := a.doc["store"].(map[string]any), a.doc["dispatch"].(map[string]any)
		return a.doc["ready"] == false && s["ready"] == false && d["ready"] == false &&
			strings.Contains(s["problem"].(string), "can not be reached") && strings.Contains(d["problem"].(string), "no claim has succeeded for 5s")
	})
	if strings.Contains(a.raw, "hunter2") {
		t.Errorf("the body says too much: %s", a.raw)
	}
	e.want(200, "GET", "/healthz?probe=1", "") // alive all the same

	st.fail(nil)
	eventually(t, "ready again", func() bool { a = e.do("GET", "/readyz", ""); return a.status == 200 && a.doc["ready"] == true })
	e.schedule(store.NewTask{ID: "x"})
	if a := <-wait; a.task(t, 0)["id"] != "x" {
		t.Errorf("the claim did not outlive the trouble: %s", a.raw)
	}
}

// lame is a store that does without a part of itself.
type lame struct{ store.Store }

func (lame) Degraded() string { return "one leg is away" }

func TestReadySaysWhatIsDoneWithout(t *testing.T) {
	inner := memstore.New(nil)
	t.Cleanup(func() { inner.Close() })
	e := start(t, lame{inner}, nil)
	var a answer
	eventually(t, "ready", func() bool { a = e.do("GET", "/readyz", ""); return a.status == 200 })
	if s := a.doc["store"].(map[string]any); s["ready"] != true || s["degraded"] != "one leg is away" {
		t.Errorf("%s", a.raw)
	}
}

// deaf is a store that has forgotten about its calls.
type deaf struct{ store.Store }

func (deaf) Queues(ctx context.Context) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (deaf) Schedule(ctx context.Context, _ []store.NewTask) ([]store.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	inner := memstore.New(nil)
	t.Cleanup(func() { inner.Close() })
	e := start(t, deaf{inner}, &Options{storeTimeout: 50 * time.Millisecond})
	for range 2 {
		for call, a := range map[string]answer{
			"queues":   e.do("GET", "/v1/queues", ""),
			"schedule": e.do("POST", "/v1/queues/q/tasks", `{"id":"1"}`),
		} {
			if a.status != 503 || a.doc["code"] != "unavailable" {
				t.Errorf("%s: %d %s", call, a.status, a.raw)
			}
		}
	}
}

func TestStoreErrorsHaveTheirStatus(t *testing.T) {
	inner := memstore.New(nil)
	t.Cleanup(func() { inner.Close() })
	st := &broken{Store: inner}
	e := start(t, st, nil)
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{fmt.Errorf("write x: %w", store.ErrFull), 507, "full"},
		{store.Unsupported("rabbit", "schedule"), 501, "unsupported"},
		{store.NewInputError("id", "x", "is wrong"), 400, "input"},
		{errors.New("dial tcp 10.0.0.7:3306: refused"), 503, "unavailable"},
		{store.ErrClosed, 503, "unavailable"},
		{fmt.Errorf("file 7: %w", store.ErrCorrupt), 500, "internal"},
	} {
		st.fail(c.err)
		a := e.want(c.status, "POST", "/v1/queues/q/tasks", `{"id":"x"}`)
		a.problemOf(t)
		if a.str("code") != c.code || strings.Contains(a.raw, "10.0.0.7") {
			t.Errorf("%v: %s", c.err, a.raw)
		}
		if (c.status == 503) != (a.header.Get("Retry-After") != "") {
			t.Errorf("%v: Retry-After %q", c.err, a.header.Get("Retry-After"))
		}
	}
	st.fail(nil)
	if results, _ := inner.Get(t.Context(), []store.Key{{Queue: "q", ID: "x"}}); results[0].Outcome != store.NotFound {
		t.Error("something was stored")
	}
}

// panicky has a bug.
type panicky struct{ store.Store }

func (panicky) Queues(context.Context) ([]string, error) { panic("a bug") }

func TestPanicIsA500(t *testing.T) {
	inner := memstore.New(nil)
	t.Cleanup(func() { inner.Close() })
	e := start(t, panicky{inner}, nil)
	if a := e.want(500, "GET", "/v1/queues", ""); a.str("code") != "internal" {
		t.Error(a.raw)
	}
	e.want(200, "GET", "/healthz", "")
}

// metric reads one series.
func (e *env) metric(series string) float64 {
	e.t.Helper()
	a := e.want(200, "GET", "/metrics", "")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(a.raw)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		e.t.Fatal(err)
	}
	return v
}

func TestMetrics(t *testing.T) {
	e := start(t, nil, nil)
	e.want(201, "POST", "/v1/queues/q/tasks", `{"id":"a"}`)
	e.want(200, "POST", "/v1/queues/q/tasks", `{"id":"a"}`)
	e.want(200, "POST", "/v1/queues/q/tasks/batch", `{"tasks":[{"id":"b","due_at":"2020-01-01T00:00:00Z"},{"id":"c"},{"id":"d"},{"id":"far","delay":"9h"},{"id":""}]}`)
	receipts := map[string]string{}
	for len(receipts) < 4 {
		a := e.want(200, "POST", "/v1/queues/q/claim", `{"max":1,"wait":"10s","lease":"100ms"}`)
		task := a.task(t, 0)
		id := task["id"].(string)
		if receipts[id] != "" {
			t.Fatalf("%s again: this machine is too slow for the test", id)
		}
		receipts[id] = task["receipt"].(string)
		call := map[string]string{"b": "ack", "c": "retry", "d": "bury"}[id]
		if call != "" {
			extra := map[string]string{"retry": `,"delay":"1h"`}[call]
			e.want(200, "POST", "/v1/"+call, `{"receipts":["`+receipts[id]+`"]`+extra+`}`)
		}
	}
	e.want(200, "POST", "/v1/ack", `{"receipts":["`+receipts["b"]+`"]}`)
	for series, want := range map[string]float64{
		`duetime_scheduled_total{outcome="created",queue="q"}`:      5,
		`duetime_scheduled_total{outcome="exists",queue="q"}`:       1,
		`duetime_scheduled_total{outcome="refused",queue=""}`:       1,
		`duetime_handed_out_total{queue="q"}`:                       4,
		`duetime_settled_total{outcome="acked",queue="q"}`:          1,
		`duetime_settled_total{outcome="retrying",queue="q"}`:       1,
		`duetime_settled_total{outcome="dead",queue="q"}`:           1,
		`duetime_settled_total{outcome="stale",queue=""}`:           1,
		`duetime_lateness_seconds_count{queue="q"}`:                 4,
		`duetime_lateness_seconds_bucket{queue="q",le="3600"}`:      3,
		`duetime_queues_not_counted`:                                0,
		`duetime_http_requests_total{call="schedule",status="201"}`: 1,
		`duetime_http_requests_total{call="schedule",status="200"}`: 1,
		`duetime_waiting_claims`:                                    0,
		`duetime_released_for_gone_clients_total`:                   0,
	} {
		if got := e.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	// a's lease runs out; nobody claims it again, and yet it is counted.
	eventually(t, "the lost lease is counted", func() bool { return e.metric(`duetime_leases_expired_total{queue="q"}`) == 1 })
	eventually(t, "depth is seen", func() bool {
		return e.metric(`duetime_tasks{queue="q",state="ready"}`) == 1 && e.metric(`duetime_tasks{queue="q",state="dead"}`) == 1
	})
	if age := e.metric(`duetime_oldest_due_age_seconds{queue="q"}`); age <= 0 || age > 60 {
		t.Errorf("oldest due age %v", age)
	}
}

// measured is a store that counts something only it can know.
type measured struct{ store.Store }

func (m measured) Measures() []store.Measure {
	return []store.Measure{{Name: "moons_total", Help: "Moons seen.", Counter: true, Value: 7}, {Name: "tide", Help: "Now.", Value: -1.5}}
}

func TestMetricsOfTheStore(t *testing.T) {
	st := memstore.New(nil)
	t.Cleanup(func() { st.Close() })
	e := start(t, measured{st}, nil)
	for series, want := range map[string]float64{"duetime_store_moons_total": 7, "duetime_store_tide": -1.5} {
		if got := e.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

func TestLeaseTable(t *testing.T) {
	base := time.Unix(1000, 0)
	lease := func(id string, until time.Duration) store.Lease {
		return store.Lease{Task: store.Task{Queue: "q", ID: id, LeaseUntil: base.Add(until)}, Receipt: store.Receipt(id)}
	}
	l := newLeaseTable()
	l.out([]store.Lease{lease("acked", time.Second), lease("extended", time.Second), lease("lost", time.Second), lease("stale", 2*time.Second)})
	l.settled(
		[]store.Settlement{{Receipt: "acked"}, {Receipt: "extended"}, {Receipt: "stale"}, {Receipt: "unknown"}},
		[]store.Result{{Outcome: store.Acked}, {Outcome: store.Extended, At: base.Add(10 * time.Second)}, {Outcome: store.Stale}, {Outcome: store.Acked}})
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{999 * time.Millisecond, 0}, {time.Second, 1}, {time.Second, 0}, {9 * time.Second, 1}, {10 * time.Second, 1}, {time.Hour, 0}} {
		if got := l.sweep(base.Add(c.at))["q"]; got != c.want {
			t.Errorf("at %v: %d, want %d", c.at, got, c.want)
		}
	}
	if len(l.byID) != 0 || len(l.ends) != 0 {
		t.Errorf("left over: %v, %v", l.byID, l.ends)
	}
}

func TestQueueLabelsAreBounded(t *testing.T) {
	m := newMetrics()
	for i := range 3 * maxQueueLabels {
		m.scheduled(fmt.Sprint("q", i), store.Created, 1)
	}
	if got := m.queue("q0"); got != "q0" {
		t.Errorf("an old queue is %q", got)
	}
	if got := m.queue("one more"); got != "other" {
		t.Errorf("a new queue is %q", got)
	}
}

func TestNoPayloadsInTheLog(t *testing.T) {
	e := start(t, nil, nil)
	for _, body := range []string{`{"id":"x","payload":"s3cret"}`, `{"id":"x","payload":"s3cret","oops":1}`, `{"id":"x","payload":"s3cret"`, `{"payload_base64":"s3cret"}`} {
		e.do("POST", "/v1/queues/q/tasks", body)
		e.do("POST", "/v1/queues/q/tasks/batch", `{"tasks":[`+body+`]}`)
	}
	e.do("POST", "/v1/queues/q/claim", `{"wait":"1s"}`)
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	if log := e.log.String(); !strings.Contains(log, "call refused") || strings.Contains(log, "s3cret") {
		t.Error(log)
	}
}

func TestDescription(t *testing.T) {
	e := start(t, nil, &Options{Version: "1.2.3"})
	a := e.want(200, "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string
		Info    struct{ Version string }
		Paths   map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []struct{ Name string }
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal([]byte(a.raw), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Version != "1.2.3" {
		t.Errorf("openapi %q, version %q", doc.OpenAPI, doc.Info.Version)
	}
	page := e.want(200, "GET", "/docs", "")
	ids := map[string]bool{}
	for _, rt := range e.server.routes() {
		if rt.tag == "" {
			continue
		}
		op, ok := doc.Paths[rt.path][strings.ToLower(rt.method)]
		if !ok || op.OperationID != rt.name || ids[rt.name] {
			t.Errorf("%s %s (%s) is not described, or twice", rt.method, rt.path, rt.name)
		}
		ids[rt.name] = true
		if !strings.Contains(page.raw, `id="`+rt.name+`"`) {
			t.Errorf("%s is not on the page", rt.name)
		}
	}
	for _, field := range []string{"id", "payload", "payload_base64", "delay", "due_at", "headers", "max_attempts", "on_conflict"} {
		if doc.Components.Schemas["NewTask"].Properties[field] == nil {
			t.Errorf("NewTask has no %s in the document", field)
		}
	}
	for name := range doc.Components.Schemas {
		if strings.HasPrefix(name, "Patch") {
			t.Errorf("schema %s shows how the server is built", name)
		}
	}
	if strings.Contains(a.raw, `"$ref":""`) {
		t.Error("an empty reference")
	}
	for _, ref := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(a.raw, -1) {
		if _, ok := doc.Components.Schemas[ref[1]]; !ok {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
	// The page works on a machine without the internet, and loads nothing.
	if m := regexp.MustCompile(`(?i)<script|<link|<img|url\(|@import|src=|https?://[^1/]`).FindString(page.raw); m != "" {
		t.Errorf("the page has %q", m)
	}
	if csp := page.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("policy %q", csp)
	}
}

func TestHandlerWithoutServe(t *testing.T) {
	inner := memstore.New(nil)
	defer inner.Close()
	srv, err := New(inner, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(srv)
	defer hs.Close()
	resp, err := http.Head(hs.URL + "/v1/queues")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || len(body) != 0 || resp.ContentLength <= 0 {
		t.Errorf("HEAD: %s, %d bytes, length %d", resp.Status, len(body), resp.ContentLength)
	}
	srv.Close()
	srv.Close()
}
