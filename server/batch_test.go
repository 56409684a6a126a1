package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// outcomes are those of a batch's answer.
func (a answer) outcomes(t *testing.T, name string) []string {
	t.Helper()
	list, ok := a.doc[name].([]any)
	if !ok {
		t.Fatalf("no %s: %s", name, a.raw)
	}
	var out []string
	for _, x := range list {
		out = append(out, x.(map[string]any)["outcome"].(string))
	}
	return out
}

func TestScheduleMany(t *testing.T) {
	e := start(t, nil, nil)
	a := e.want(200, "POST", "/v1/queues/q/tasks/batch", `{"tasks":[
		{"id":"a","delay":"1h"},{"id":"a","delay":"2h"},{"id":"b","delay":"-1h"},{"id":"c","delay":"30"},{"delay":"1h"},{"id":"d","queue":"other"},
		{"id":"a","on_conflict":"replace","delay":"3h"}]}`)
	want := []string{"created", "exists", "refused", "refused", "created", "refused", "replaced"}
	if got := a.outcomes(t, "outcomes"); !slices.Equal(got, want) || a.doc["refused"] != 3.0 {
		t.Errorf("%v, want %v: %s", got, want, a.raw)
	}
	third := a.doc["outcomes"].([]any)[2].(map[string]any)
	if err := third["error"].(map[string]any); third["id"] != "b" || err["field"] != "delay" || err["value"] != "-1h0m0s" {
		t.Errorf("%v", third)
	}
	if second := a.doc["outcomes"].([]any)[1].(map[string]any); second["task"].(map[string]any)["id"] != "a" {
		t.Errorf("%v", second)
	}
}

func TestNDJSON(t *testing.T) {
	e := start(t, nil, nil)
	lines := "{\"id\":\"a\",\"payload\":\"x\\ny\"}\r\n\n{\"id\":\"b\"}\n{\"id\":\"c\"}"
	a := e.want(200, "POST", "/v1/queues/q/tasks/batch", lines, "Content-Type", "application/x-ndjson")
	if got := a.outcomes(t, "outcomes"); len(got) != 3 || slices.Contains(got, "refused") {
		t.Error(a.raw)
	}
	a = e.want(400, "POST", "/v1/queues/q/tasks/batch", "{\"id\":\"d\"}\n\n{\"id\":\"e\",\"delay\":5}\n", "Content-Type", "application/x-ndjson")
	if field, value, problem := a.problemOf(t); field != "line 3: delay" || value != `"5"` || !strings.Contains(problem, "no unit") {
		t.Error(a.raw)
	}
	a = e.want(400, "POST", "/v1/queues/q/tasks/batch", "{\"id\":\"d\"} {\"id\":\"e\"}\n", "Content-Type", "application/x-ndjson")
	if field, _, _ := a.problemOf(t); field != "line 1: body" {
		t.Error(a.raw)
	}
	e.want(404, "GET", "/v1/queues/q/tasks/d", "") // nothing of a body that can not be read
}

func TestBatchLimits(t *testing.T) {
	e := start(t, nil, &Options{MaxBatchBody: 4 << 20})
	ids := make([]map[string]string, 10_001)
	for i := range ids {
		ids[i] = map[string]string{"id": fmt.Sprint(i), "delay": "1h"}
	}
	body := func(n int) string {
		b, _ := json.Marshal(map[string]any{"tasks": ids[:n]})
		return string(b)
	}
	a := e.want(413, "POST", "/v1/queues/q/tasks/batch", body(10_001))
	if field, value, problem := a.problemOf(t); field != "tasks" || value != "10001" || !strings.Contains(problem, "the limit is 10000") {
		t.Error(a.raw)
	}
	var lines strings.Builder
	for i := range ids {
		fmt.Fprintf(&lines, "{\"id\":\"%d\"}\n", i)
	}
	e.want(413, "POST", "/v1/queues/q/tasks/batch", lines.String(), "Content-Type", "application/x-ndjson")
	if s := e.stats(); s != (store.Stats{}) {
		t.Errorf("something was stored: %+v", s)
	}
	a = e.want(200, "POST", "/v1/queues/q/tasks/batch", body(10_000))
	if got := a.outcomes(t, "outcomes"); len(got) != 10_000 || a.doc["refused"] != 0.0 {
		t.Errorf("%d outcomes, %v refused", len(got), a.doc["refused"])
	}
	big := `{"tasks":[{"payload":"` + strings.Repeat("x", 900<<10) + `"}` + strings.Repeat(`,{"payload":"`+strings.Repeat("x", 900<<10)+`"}`, 4) + `]}`
	a = e.want(413, "POST", "/v1/queues/q/tasks/batch", big)
	if field, _, problem := a.problemOf(t); field != "body" || !strings.Contains(problem, "the limit is 4194304 bytes") {
		t.Error(a.raw)
	}
	// Without a length the server finds out as it reads.
	req := e.request(t.Context(), "POST", "/v1/queues/q/tasks/batch", big)
	req.ContentLength = -1
	resp, err := e.roundTrip(req)
	if err == nil && resp.StatusCode != 413 {
		t.Errorf("status %d", resp.StatusCode)
	}
	many := `{"receipts":["x"` + strings.Repeat(`,"x"`, 10_000) + `]}`
	for _, call := range []string{"ack", "release"} {
		if a := e.want(413, "POST", "/v1/"+call, many); a.str("field") != "receipts" {
			t.Error(a.raw)
		}
	}
}

func TestBatchesOverQueues(t *testing.T) {
	e := start(t, nil, nil)
	a := e.want(200, "POST", "/v1/batch/schedule", `{"tasks":[{"queue":"a","id":"1"},{"queue":"b","id":"1","payload":[1]},{"id":"1"},{"queue":"-","id":"1"}]}`)
	if got := a.outcomes(t, "outcomes"); !slices.Equal(got, []string{"created", "created", "refused", "refused"}) {
		t.Error(a.raw)
	}
	a = e.want(200, "POST", "/v1/batch/reschedule", `{"tasks":[{"queue":"a","id":"1","due_at":"2020-01-01T00:00:00Z"},{"queue":"b","id":"1","delay":"0"},{"queue":"b","id":"2","delay":"1s"},{"queue":"b","id":"1","due_at":"2020-01-01T00:00:00Z"}]}`)
	if got := a.outcomes(t, "results"); !slices.Equal(got, []string{"rescheduled", "refused", "not_found", "rescheduled"}) {
		t.Error(a.raw)
	}
	a = e.want(200, "POST", "/v1/batch/get", `{"tasks":[{"queue":"b","id":"1"},{"queue":"b","id":"2"},{"queue":"b","id":""}]}`)
	if got := a.outcomes(t, "results"); !slices.Equal(got, []string{"found", "not_found", "refused"}) || !strings.Contains(a.raw, `"payload":[1]`) {
		t.Error(a.raw)
	}
	a = e.want(200, "POST", "/v1/batch/claim?payload=base64", `{"claims":[{"queue":"a","max":5,"lease":"1m"},{"queue":"b","max":5,"worker":"w"},{"queue":"c","max":0},{"queue":"c","max":1,"lease":"1"},{"queue":"c","max":1}]}`)
	results := a.doc["results"].([]any)
	var receipts []string
	for i, want := range []struct {
		tasks int
		field string
	}{{1, ""}, {1, ""}, {0, "max"}, {0, "lease"}, {0, ""}} {
		r := results[i].(map[string]any)
		field := ""
		if err, ok := r["error"].(map[string]any); ok {
			field = err["field"].(string)
		}
		tasks := r["tasks"].([]any)
		if len(tasks) != want.tasks || field != want.field {
			t.Errorf("claim %d: %v", i, r)
		}
		for _, task := range tasks {
			receipts = append(receipts, task.(map[string]any)["receipt"].(string))
		}
	}
	a = e.want(200, "POST", "/v1/batch/settle", fmt.Sprintf(`{"settlements":[{"receipt":%q,"action":"ack"},{"receipt":%q,"action":"retry","delay":"1h","error":"no"},{"receipt":%q,"action":"eat"},{"receipt":"x","action":"ack"}]}`, receipts[0], receipts[1], receipts[1]))
	if got := a.outcomes(t, "results"); !slices.Equal(got, []string{"acked", "retrying", "refused", "refused"}) {
		t.Error(a.raw)
	}
	a = e.want(200, "POST", "/v1/batch/cancel", `{"tasks":[{"queue":"a","id":"1"},{"queue":"b","id":"1"}]}`)
	if got := a.outcomes(t, "results"); !slices.Equal(got, []string{"not_found", "cancelled"}) {
		t.Error(a.raw)
	}
}

func TestImportBatch(t *testing.T) {
	e := start(t, nil, nil)
	a := e.want(200, "POST", "/v1/batch/import", `{"tasks":[
		{"queue":"a","id":"1","due_at":"2020-01-01T00:00:00Z","created_at":"2019-01-01T00:00:00Z","failures":2,"lost":1,"payload":{"n":1}},
		{"queue":"a","id":"1","due_at":"2020-01-01T00:00:00Z","created_at":"2019-01-01T00:00:00Z"},
		{"queue":"a","id":"2","state":"dead","due_at":"2020-01-01T00:00:00Z","created_at":"2019-01-01T00:00:00Z","last_error":"boom","payload_base64":"AA=="},
		{"queue":"a","id":"3","state":"leased","due_at":"2020-01-01T00:00:00Z","created_at":"2019-01-01T00:00:00Z"},
		{"queue":"a","id":"4","state":"gone","due_at":"2020-01-01T00:00:00Z","created_at":"2019-01-01T00:00:00Z"},
		{"queue":"a","id":"5","due_at":"2020-01-01T00:00:00Z"},
		{"queue":"a","id":"6","created_at":"2019-01-01T00:00:00Z","due_at":"tomorrow"}]}`)
	if got := a.outcomes(t, "results"); !slices.Equal(got, []string{"created", "exists", "created", "refused", "refused", "refused", "refused"}) {
		t.Error(a.raw)
	}
	for i, field := range []string{3: "state", 4: "state", 5: "created_at", 6: "due_at"} {
		if field == "" {
			continue
		}
		if got := a.doc["results"].([]any)[i].(map[string]any)["error"].(map[string]any)["field"]; got != field {
			t.Errorf("item %d: error names %v, want %s", i, got, field)
		}
	}
	a = e.want(200, "GET", "/v1/queues/a/tasks/1", "")
	for name, want := range map[string]any{"state": "ready", "failures": 2.0, "lost": 1.0, "created_at": "2019-01-01T00:00:00.000Z"} {
		if a.doc[name] != want {
			t.Errorf("%s is %v, want %v", name, a.doc[name], want)
		}
	}
	if a := e.want(200, "GET", "/v1/queues/a/tasks/2", ""); a.str("state") != "dead" || a.str("last_error") != "boom" {
		t.Error(a.raw)
	}
	e.want(413, "POST", "/v1/batch/import", `{"tasks":[{}`+strings.Repeat(",{}", 10_000)+`]}`)
}

func TestImportIsUnsupportedWhereTheStoreCanNot(t *testing.T) {
	e := start(t, struct{ store.Store }{memstore.New(nil)}, nil)
	if a := e.want(501, "POST", "/v1/batch/import", `{"tasks":[]}`); !strings.Contains(a.raw, "import") {
		t.Error(a.raw)
	}
}

func TestList(t *testing.T) {
	e := start(t, nil, nil)
	for i := range 7 {
		e.schedule(store.NewTask{ID: fmt.Sprint("s", i), Delay: 3_600_000_000_000 + 1_000_000_000*1}, store.NewTask{ID: fmt.Sprint("r", i), Due: store.MinTime.AddDate(50, 0, i), Payload: []byte(`{"n":1}`)})
	}
	for n, call := range []string{"", "bury"} { // l0 and l1 leased, then l0 dead
		a := e.want(200, "POST", "/v1/queues/q/claim", `{"max":1,"lease":"1h"}`)
		if call != "" {
			e.want(200, "POST", "/v1/"+call, fmt.Sprintf(`{"receipts":[%q]}`, a.task(t, 0)["receipt"]))
		}
		_ = n
	}
	all := []string{"r0", "r2", "r3", "r4", "r5", "r6", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "r1"}
	for limit := 1; limit <= 20; limit++ {
		var got []string
		cursor := ""
		for pages := 0; ; pages++ {
			a := e.want(200, "GET", fmt.Sprintf("/v1/queues/q/tasks?limit=%d&cursor=%s", limit, cursor), "")
			tasks := a.doc["tasks"].([]any)
			if len(tasks) > limit || pages > 20 {
				t.Fatalf("limit %d: %d tasks, %d pages", limit, len(tasks), pages)
			}
			for _, x := range tasks {
				task := x.(map[string]any)
				got = append(got, task["id"].(string))
				if task["payload"] != nil || task["payload_base64"] != nil {
					t.Errorf("a payload nobody asked for: %v", task)
				}
			}
			if cursor = a.str("next_cursor"); cursor == "" {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("limit %d: %v, want %v", limit, got, all)
		}
	}
	if a := e.want(200, "GET", "/v1/queues/q/tasks?state=ready&payload=json&limit=2", ""); len(a.doc["tasks"].([]any)) != 2 || !strings.Contains(a.raw, `"payload":{"n":1}`) {
		t.Error(a.raw)
	}
	if a := e.want(200, "GET", "/v1/queues/empty/tasks", ""); a.raw != "{\"tasks\":[]}\n" {
		t.Error(a.raw)
	}
}

func TestSettings(t *testing.T) {
	e := start(t, nil, nil)
	a := e.want(200, "GET", "/v1/queues/q", "")
	if a.header.Get("ETag") != `"0"` || !strings.Contains(a.raw, `"settings":{"version":0,"paused":false,"max_attempts":25,"max_lost":10,"backoff":{"initial":"1s","max":"1h0m0s","factor":2,"jitter":1},"lease":"30s","release":"immediate"}`) {
		t.Errorf("%s %s", a.header.Get("ETag"), a.raw)
	}
	a = e.want(200, "PATCH", "/v1/queues/q", `{"release":"every 5s","backoff":{"max":"PT10M"}}`, "If-Match", `"0"`)
	if a.header.Get("ETag") != `"1"` || a.str("release") != "every 5s" || a.doc["backoff"].(map[string]any)["max"] != "10m0s" || a.doc["max_attempts"] != 25.0 {
		t.Error(a.raw)
	}
	e.want(412, "PATCH", "/v1/queues/q", `{"max_attempts":3}`, "If-Match", `"0"`)
	e.want(400, "PATCH", "/v1/queues/q", `{"max_attempts":3}`, "If-Match", `latest`)
	e.want(200, "PATCH", "/v1/queues/q", `{"max_attempts":3}`, "If-Match", `*`)
	a = e.want(200, "PATCH", "/v1/queues/q", `{"release":null,"backoff":null,"max_attempts":null,"lease":"PT1M"}`)
	if a.str("release") != "immediate" || a.doc["backoff"].(map[string]any)["max"] != "1h0m0s" || a.doc["max_attempts"] != 25.0 || a.str("lease") != "1m0s" {
		t.Error(a.raw)
	}
	e.want(200, "PATCH", "/v1/queues/q", `{"release":"CRON_TZ=Asia/Shanghai 0 0 7 * * *"}`)
	if a = e.want(200, "POST", "/v1/queues/q/pause", ""); a.doc["paused"] != true {
		t.Error(a.raw)
	}
	if a = e.want(200, "POST", "/v1/queues/q/resume", "{}"); a.doc["paused"] != false || a.str("release") != "CRON_TZ=Asia/Shanghai 0 0 7 * * *" {
		t.Error(a.raw)
	}
	e.want(412, "POST", "/v1/queues/q/pause", "", "If-Match", `"1"`)
	if a = e.want(200, "GET", "/v1/queues", ""); a.raw != "{\"queues\":[\"q\"]}\n" {
		t.Error(a.raw)
	}
}

func TestPurge(t *testing.T) {
	e := start(t, nil, nil)
	fill := func() {
		for i := range 5 {
			e.schedule(store.NewTask{ID: fmt.Sprint(i), Delay: 3_600_000_000_000})
		}
	}
	fill()
	if a := e.want(200, "POST", "/v1/queues/q/purge", `{"ids":["1","2","x"]}`); a.doc["purged"] != 2.0 {
		t.Error(a.raw)
	}
	if a := e.want(200, "POST", "/v1/queues/q/purge", `{"state":"dead"}`); a.doc["purged"] != 0.0 {
		t.Error(a.raw)
	}
	if a := e.want(200, "POST", "/v1/queues/q/purge", `{"state":"scheduled"}`); a.doc["purged"] != 3.0 {
		t.Error(a.raw)
	}
	fill()
	e.schedule(store.NewTask{ID: "ready", Due: store.MinTime})
	if a := e.want(200, "POST", "/v1/queues/q/purge", `{"all":true}`); a.doc["purged"] != 6.0 {
		t.Error(a.raw)
	}
}

func TestAtMostOnce(t *testing.T) {
	e := start(t, nil, nil)
	e.schedule(store.NewTask{ID: "x"})
	task := e.want(200, "POST", "/v1/queues/q/claim", `{"wait":"10s","lease":"0s"}`).task(t, 0)
	if task["receipt"] != nil {
		t.Errorf("%v", task)
	}
	e.want(404, "GET", "/v1/queues/q/tasks/x", "")
}
