package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

// problemOf checks the shape of a problem document and returns field, value and
// problem.
func (a answer) problemOf(t *testing.T) (field, value, problem string) {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q: %s", got, a.raw)
	}
	if a.doc["status"] != float64(a.status) || a.str("title") == "" || a.str("detail") == "" || a.str("code") == "" {
		t.Errorf("no problem document: %s", a.raw)
	}
	return a.str("field"), a.str("value"), a.str("problem")
}

func TestWrongInputIsRefusedByName(t *testing.T) {
	e := start(t, nil, nil)
	const tasks, one, claim, queue = "/v1/queues/q/tasks", "/v1/queues/q/tasks/a", "/v1/queues/q/claim", "/v1/queues/q"
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		method, path, body string
		status             int
		field, value       string // value: "" is not compared
		problem            string // part of it
	}{
		// JSON
		{"POST", tasks, ``, 400, "body", "", "is empty"},
		{"POST", tasks, ` `, 400, "body", "", "is empty"},
		{"POST", tasks, `[]`, 400, "body", "(an array)", "must be a JSON object"},
		{"POST", tasks, `null`, 400, "body", "null", "must be a JSON object"},
		{"POST", tasks, `{"id":"a"`, 400, "body", "", "ends in the middle, after 9 bytes"},
		{"POST", tasks, `{"id":"a"} x`, 400, "body", "", "there is text after"},
		{"POST", tasks, `{"id":"a"}{}`, 400, "body", "", "there is text after"},
		{"POST", tasks, `{'id':'a'}`, 400, "body", "", "no valid JSON at byte 1"},
		{"POST", tasks, `{"id":"a","id":"b"}`, 400, "id", "", "given twice"},
		{"POST", tasks, `{"id":"a","payload":{"x":1,"x":2}}`, 400, "payload.x", "", "given twice"},
		{"POST", tasks, `{"headers":{"x":"1","x":"2"}}`, 400, "headers.x", "", "given twice"},
		{"POST", tasks, `{"idd":"a"}`, 400, "idd", "", "not a known field; known are queue, id, payload"},
		{"POST", tasks, `{"ID":"a"}`, 400, "ID", "", `did you mean "id"?`},
		{"POST", tasks, `{"id":7}`, 400, "id", "7", "must be a string"},
		{"POST", tasks, `{"headers":["x"]}`, 400, "headers", "(an array)", "must be an object"},
		{"POST", tasks, `{"headers":{"x":1}}`, 400, "headers.x", "1", "must be a string"},
		{"POST", tasks, "{\"id\":\"\xff\"}", 400, "id", "", "UTF-8"},
		{"POST", tasks, `{"payload":"\ud800"}`, 400, "payload", "", "payload_base64"},
		{"POST", tasks, `{"payload_base64":"a b"}`, 400, "payload_base64", "", "no valid base64"},
		{"POST", tasks, `{"payload":1,"payload_base64":"AA=="}`, 400, "payload_base64", "", "together with payload"},
		// Times and durations
		{"POST", tasks, `{"delay":30}`, 400, "delay", `"30"`, "has no unit: write 30s for seconds"},
		{"POST", tasks, `{"delay":"30"}`, 400, "delay", `"30"`, "has no unit: write 30s for seconds"},
		{"POST", tasks, `{"delay":1.5e3}`, 400, "delay", `"1.5e3"`, "has no unit"},
		{"POST", tasks, `{"delay":true}`, 400, "delay", "true", `such as "30m"`},
		{"POST", tasks, `{"delay":""}`, 400, "delay", `""`, "is empty"},
		{"POST", tasks, `{"delay":"soon"}`, 400, "delay", `"soon"`, "is not a duration"},
		{"POST", tasks, `{"delay":"-1ms"}`, 400, "delay", "-1ms", "is negative, must be 0 or more"},
		{"POST", tasks, `{"delay":"P1Y"}`, 400, "delay", `"P1Y"`, "not fixed"},
		{"POST", tasks, `{"delay":"9223372036854775808ns"}`, 400, "delay", "", "292 years"},
		{"POST", tasks, `{"due_at":1767225600}`, 400, "due_at", `"1767225600"`, "bare number"},
		{"POST", tasks, `{"due_at":"1767225600"}`, 400, "due_at", "", "bare number"},
		{"POST", tasks, `{"due_at":"2030-01-31T07:00:00"}`, 400, "due_at", "", "has no zone"},
		{"POST", tasks, `{"due_at":"10000-01-01T00:00:00Z"}`, 400, "due_at", "", "latest due time is 9999-12-31"},
		{"POST", tasks, `{"due_at":"9999-12-31T23:59:59.9999Z"}`, 400, "due_at", "", "latest due time"},
		{"POST", tasks, `{"due_at":"1969-12-31T23:59:59Z"}`, 400, "due_at", "", "earliest due time"},
		{"POST", tasks, `{"due_at":"0001-01-01T00:00:00Z"}`, 400, "due_at", "", "earliest due time"},
		{"POST", tasks, `{"due_at":"2030-02-30T00:00:00Z"}`, 400, "due_at", "", "in the calendar"},
		{"POST", tasks, `{"due_at":"2030-01-01T00:00:00Z","delay":"0s"}`, 400, "delay", "", "together with due_at"},
		{"POST", tasks, `{"due_at":null,"delay":{}}`, 400, "delay", "(an object)", "duration in a string"},
		// The task
		{"POST", tasks, `{"id":""}`, 400, "id", `""`, "must be 1 to 255"},
		{"POST", tasks, `{"id":"` + long + `"}`, 400, "id", "", "is 256 bytes long, must be 1 to 255"},
		{"POST", tasks, `{"id":"a\u0000b"}`, 400, "id", "", "control character at byte 2"},
		{"POST", tasks, `{"id":"a\u0085b"}`, 400, "id", "", "control character"},
		{"POST", tasks, `{"max_attempts":-1}`, 400, "max_attempts", "-1", "must be 0"},
		{"POST", tasks, `{"max_attempts":1.5}`, 400, "max_attempts", "1.5", "a whole number"},
		{"POST", tasks, `{"max_attempts":99999999999999999999}`, 400, "max_attempts", "", "a whole number"},
		{"POST", tasks, `{"on_conflict":"overwrite"}`, 400, "on_conflict", `"overwrite"`, "must be keep or replace"},
		{"POST", tasks, `{"on_conflict":""}`, 400, "on_conflict", `""`, "must be keep or replace"},
		{"POST", tasks, `{"headers":{"":"x"}}`, 400, "headers", "", "must not be empty"},
		{"POST", tasks, `{"headers":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`, 413, "headers", "", "the limit is 16384"},
		{"POST", tasks, `{"payload":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "payload", "(1048578 bytes)", "the limit is 1048576"},
		{"POST", tasks, `{"payload":"` + strings.Repeat("x", 3<<20) + `"}`, 413, "body", "", "the limit is 2162688 bytes"},
		{"POST", tasks, `{"queue":"other"}`, 400, "queue", `"other"`, "another than the path's"},
		// The path and the query
		{"POST", "/v1/queues/-q/tasks", `{}`, 400, "queue", `"-q"`, "must begin with a letter or digit"},
		{"POST", "/v1/queues/a%20b/tasks", `{}`, 400, "queue", `"a b"`, "may only have"},
		{"POST", "/v1/queues/" + long + "/tasks", `{}`, 400, "queue", "", "must be 1 to 100"},
		{"GET", one + "?payload=xml", ``, 400, "query.payload", `"xml"`, "json, base64 or none"},
		{"GET", one + "?froce=true", ``, 400, "query", `"froce"`, "known are payload"},
		{"DELETE", one + "?force=yes", ``, 400, "query.force", `"yes"`, "true or false"},
		{"DELETE", one + "?force=true&force=false", ``, 400, "query.force", "", "given twice"},
		{"DELETE", one + "?force=%zz", ``, 400, "query", "", "not well formed"},
		{"GET", "/v1/queues/q/task", ``, 400, "query.id", "", "is missing"},
		{"GET", "/v1/queues/q/task?id=", ``, 400, "id", `""`, "must be 1 to 255"},
		{"GET", "/v1/queues/q/tasks/a%0Ab", ``, 400, "id", "", "control character"},
		{"PATCH", one, `{}`, 400, "due_at", "", "give delay or due_at"},
		{"PATCH", one, `{"delay":"-1s"}`, 400, "delay", "-1s", "is negative"},
		{"GET", tasks + "?state=asleep", ``, 400, "state", `"asleep"`, "scheduled, ready, leased or dead"},
		{"GET", tasks + "?limit=0", ``, 400, "limit", "0", "must be 1 to 1000"},
		{"GET", tasks + "?limit=1001", ``, 400, "limit", "1001", "must be 1 to 1000"},
		{"GET", tasks + "?limit=ten", ``, 400, "query.limit", `"ten"`, "whole number"},
		{"GET", tasks + "?cursor=nonsense", ``, 400, "cursor", "", ""},
		{"GET", tasks + "?state=dead&cursor=nonsense", ``, 400, "cursor", "", ""},
		// Claim and settle
		{"POST", claim, `{"max":0}`, 400, "max", "0", "must be 1 to 10000"},
		{"POST", claim, `{"max":10001}`, 400, "max", "10001", "must be 1 to 10000"},
		{"POST", claim, `{"wait":"61s"}`, 400, "wait", "1m1s", "must be 0s to 1m0s"},
		{"POST", claim, `{"wait":20}`, 400, "wait", `"20"`, "has no unit"},
		{"POST", claim, `{"lease":"25h"}`, 400, "lease", "25h0m0s", "must be 1ms to 24h"},
		{"POST", claim, `{"lease":"1us"}`, 400, "lease", "1µs", "must be 1ms to 24h"},
		{"POST", claim, `{"lease":"-1s"}`, 400, "lease", "-1s", "must be 1ms to 24h0m0s, or 0s for at most once"},
		{"POST", queue + "/pause", `{"x":1}`, 400, "x", "", "is not a known field; there are none here"},
		{"POST", tasks + "/batch", `{"tasks":[{"id":"a","foo":1}]}`, 400, "tasks[0].foo", "", "is not a known field; known are queue, id, payload"},
		{"POST", tasks + "/batch", `{"tasks":[{"Id":"a"}]}`, 400, "tasks[0].Id", "", `did you mean "id"?`},
		{"PATCH", queue, `{"backoff":{"x":1}}`, 400, "settings.backoff.x", "", "known are initial, max, factor, jitter"},
		{"POST", queue + "/purge", `{"state":"dead","all":true}`, 400, "state", "", "give one of"},
		{"POST", claim, `{"wait_id":"` + long + `"}`, 400, "wait_id", "", "the limit is 64"},
		{"POST", "/v1/ack", `{}`, 400, "receipts", "", "is missing"},
		{"POST", "/v1/ack", `{"receipts":["x"],"delay":"1s"}`, 400, "delay", "", "not a known field"},
		{"POST", "/v1/snooze", `{"receipts":["x"]}`, 400, "delay", "", "is missing"},
		{"POST", "/v1/retry", `{"receipts":["x"],"delay":"-1s"}`, 400, "delay", "-1s", "is negative"},
		{"POST", "/v1/extend", `{"receipts":["x"],"lease":"0s"}`, 400, "lease", "", "must be 1ms to 24h"},
		{"POST", "/v1/extend", `{"receipts":["x"],"lease":"P2D"}`, 400, "lease", "48h0m0s", "must be 1ms to 24h"},
		// Queues
		{"PATCH", queue, `{"colour":"red"}`, 400, "settings.colour", "", "known are paused, max_attempts"},
		{"PATCH", queue, `{"version":3}`, 400, "settings.version", "", "not a known field"},
		{"PATCH", queue, `{"max_attempts":0}`, 400, "settings.max_attempts", "0", "must be 1 to 1000000"},
		{"PATCH", queue, `{"max_attempts":"5"}`, 400, "settings.max_attempts", "", "a whole number"},
		{"PATCH", queue, `{"lease":30}`, 400, "settings.lease", `"30"`, "has no unit"},
		{"PATCH", queue, `{"lease":"30"}`, 400, "settings.lease", `"30"`, "has no unit"},
		{"PATCH", queue, `{"lease":"48h"}`, 400, "settings.lease", "48h0m0s", "must be 1ms to 24h"},
		{"PATCH", queue, `{"release":"0 0 30 2 *"}`, 400, "settings.release", "", "never comes"},
		{"PATCH", queue, `{"release":"TZ=Moon 0 0 * * *"}`, 400, "settings.release", "", `time zone "Moon"`},
		{"PATCH", queue, `{"backoff":{"factor":0.5}}`, 400, "settings.backoff.factor", "0.5", "must be 1 to 100"},
		{"PATCH", queue, `{"backoff":{"initial":"2h"}}`, 400, "settings.backoff.max", "", "backoff.initial"},
		{"PATCH", queue, `{"backoff":{"half":1}}`, 400, "settings.backoff.half", "", "not a known field"},
		{"POST", queue + "/pause", `{"for":"1h"}`, 400, "for", "", "not a known field"},
		{"POST", queue + "/redrive", `{}`, 400, "ids", "", "give either {\"ids\":[…]} or {\"all\":true}"},
		{"POST", queue + "/redrive", `{"ids":["a"],"all":true}`, 400, "ids", "", "give either {\"ids\":[…]} or {\"all\":true}"},
		{"POST", queue + "/redrive", `{"ids":[""]}`, 400, "id", `""`, "must be 1 to 255"},
		{"POST", queue + "/purge", `{}`, 400, "state", "", "give one of"},
		{"POST", queue + "/purge", `{"all":true,"state":"dead"}`, 400, "state", "", "give one of"},
		{"POST", queue + "/purge", `{"state":"gone"}`, 400, "state", `"gone"`, "scheduled, ready, leased or dead"},
		// Elsewhere
		{"GET", "/v2/queues", ``, 404, "path", "", "see /docs"},
		{"GET", "/v1/queues/q/tasks/a/b", ``, 404, "path", "", "A slash in an id is written %2F"},
		{"GET", "/v1//queues", ``, 404, "path", "", "see /docs"},
		{"PUT", one, `{}`, 405, "method", `"PUT"`, "must be DELETE, GET, HEAD, PATCH"},
	} {
		a := e.do(c.method, c.path, c.body)
		name := fmt.Sprintf("%s %.60s %.60s", c.method, c.path, c.body)
		if a.status != c.status {
			t.Errorf("%s: status %d, want %d: %s", name, a.status, c.status, a.raw)
			continue
		}
		field, value, problem := a.problemOf(t)
		if field != c.field || c.value != "" && value != c.value || !strings.Contains(problem, c.problem) {
			t.Errorf("%s:\n got %q, %s: %q\nwant %q, %s: %q", name, field, value, problem, c.field, c.value, c.problem)
		}
		if len(value) > 200 {
			t.Errorf("%s: value of %d bytes", name, len(value))
		}
	}
	if a := e.want(200, "GET", "/v1/queues", ""); a.raw != "{\"queues\":[]}\n" {
		t.Errorf("something was stored: %s", a.raw)
	}
}

func TestMediaTypes(t *testing.T) {
	e := start(t, nil, nil)
	for header, status := range map[string]int{
		"application/json":                       201,
		"application/json; charset=utf-8":        201,
		"application/json; charset=UTF-8":        201,
		"APPLICATION/JSON":                       201,
		"application/json; charset=iso-8859-1":   415,
		"application/x-www-form-urlencoded":      415,
		"text/plain":                             415,
		"application/x-ndjson":                   415,
		"":                                       415,
		"application/json, text/plain; nonsense": 415,
	} {
		a := e.want(status, "POST", "/v1/queues/q/tasks", `{"delay":"1h"}`, "Content-Type", header)
		if status == 415 {
			if field, _, problem := a.problemOf(t); field != "Content-Type" || !strings.Contains(problem, "must be application/json") {
				t.Errorf("%s: %s", header, a.raw)
			}
		}
	}
	e.want(415, "POST", "/v1/queues/q/tasks", `{"delay":"1h"}`, "Content-Encoding", "gzip")
	e.want(200, "PATCH", "/v1/queues/q", `{"paused":false}`, "Content-Type", "application/merge-patch+json")
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	e := start(t, nil, nil)
	a := e.want(403, "POST", "/v1/queues/q/pause", "", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	if field, value, _ := a.problemOf(t); field != "Sec-Fetch-Site" || value != `"cross-site"` {
		t.Error(a.raw)
	}
	a = e.want(403, "DELETE", "/v1/queues/q/tasks/a", "", "Origin", "https://evil.example")
	if field, value, _ := a.problemOf(t); field != "Origin" || value != `"https://evil.example"` {
		t.Error(a.raw)
	}
	e.want(200, "GET", "/v1/queues", "", "Origin", "https://evil.example")
	e.want(200, "POST", "/v1/queues/q/pause", "", "Sec-Fetch-Site", "same-origin")
}

// hostileIDs are legal ones.
var hostileIDs = []string{
	".", "..", "...", "/", "//", "a/b", "/a", "a/", "../..", "a//b", "a b", " ", "a+b", "+", "%", "%2F", "%2e%2e", "a%00b", "?", "?[x]", "*", "#", "a#b",
	"a&b=c", ";", "a;b", ":", "a:b", "{a}", "{}", "}{", `"`, `'; --`, `\`, "<script>alert(1)</script>", "敏琳张", "订单-1001", "😀", "e\u0301", "\u00e9",
	"Abc", "abc", "abc ", "null", "undefined", "007", "-1", "0", "batch", "tasks", "claim", "\u2028", "ÄÖ€", strings.Repeat("é", 127), strings.Repeat("x", 255),
}

func TestHostileIDsWorkInEveryCall(t *testing.T) {
	e := start(t, nil, nil)
	byPath := func(id string) string {
		return "/v1/queues/q/tasks/" + strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
	}
	byQuery := func(id string) string { return "/v1/queues/q/task?id=" + url.QueryEscape(id) }
	for name, at := range map[string]func(string) string{"path": byPath, "query": byQuery} {
		and := "?"
		if name == "query" {
			and = "&"
		}
		for _, id := range hostileIDs {
			quoted, _ := json.Marshal(id)
			payload := base64.StdEncoding.EncodeToString([]byte(id))
			body := fmt.Sprintf(`{"id":%s,"payload_base64":%q,"delay":"1h"}`, quoted, payload)
			if a := e.want(201, "POST", "/v1/queues/q/tasks", body); a.str("id") != id {
				t.Errorf("%s: scheduled as %q", quoted, a.str("id"))
			}
			if a := e.want(200, "GET", at(id)+and+"payload=base64", ""); a.str("id") != id || a.str("payload_base64") != payload {
				t.Errorf("%s: got %s", quoted, a.raw)
			}
			e.want(200, "PATCH", at(id), `{"delay":"2h"}`)
		}
		if a := e.want(200, "GET", "/v1/queues/q", ""); a.doc["counts"].(map[string]any)["scheduled"] != float64(len(hostileIDs)) {
			t.Errorf("%d ids, and %s", len(hostileIDs), a.raw)
		}
		for _, id := range hostileIDs {
			e.want(200, "PATCH", at(id), `{"due_at":"2020-01-01T00:00:00Z"}`)
			task := e.want(200, "POST", "/v1/queues/q/claim", "").task(t, 0)
			if task["id"] != id {
				t.Errorf("claimed %q, want %q", task["id"], id)
			}
			e.want(409, "DELETE", at(id), "")
			e.want(200, "POST", "/v1/bury", fmt.Sprintf(`{"receipts":[%q]}`, task["receipt"]))
			quoted, _ := json.Marshal(id)
			if a := e.want(200, "POST", "/v1/queues/q/redrive", fmt.Sprintf(`{"ids":[%s]}`, quoted)); a.doc["redriven"] != 1.0 {
				t.Errorf("redrive of %s: %s", quoted, a.raw)
			}
			e.want(200, "DELETE", at(id), "")
			e.want(404, "GET", at(id), "")
		}
	}
}

func TestPayloadsComeBackAsTheyWere(t *testing.T) {
	e := start(t, nil, nil)
	for _, c := range []struct{ in, out string }{
		{`{"id":9007199254740993,"s":1970670598291982290,"u":18446744073709551615,"n":-9223372036854775808,"f":1.0,"e":1e400,"z":-0}`, ""},
		{`"<a href=\"x\">&\u2028\u00e9é敏\/"`, ""},
		{`"\u0041"`, ""},
		{`null`, ""},
		{`true`, ""},
		{`0`, ""},
		{`""`, ""},
		{`[]`, ""},
		{`{}`, ""},
		{" { \"a b\" :\n[ 1 ,\t2.50 ] } ", `{"a b":[1,2.50]}`},
		{`{"b":1,"a":2}`, ""},
		{`"😀"`, ""},
		{strings.Repeat("[", 5000) + strings.Repeat("]", 5000), ""},
	} {
		want := c.out
		if want == "" {
			want = c.in
		}
		a := e.want(201, "POST", "/v1/queues/q/tasks", `{"id":"x","payload":`+c.in+`}`)
		if !strings.Contains(a.raw, `"payload":`+want+`,"headers"`) {
			t.Errorf("%.200s scheduled: %.300s", c.in, a.raw)
		}
		a = e.want(200, "GET", "/v1/queues/q/tasks/x", "")
		if !strings.Contains(a.raw, `"payload":`+want+`,"headers"`) {
			t.Errorf("%.200s got: %.300s", c.in, a.raw)
		}
		a = e.want(200, "GET", "/v1/queues/q/tasks/x?payload=base64", "")
		if got, _ := base64.StdEncoding.DecodeString(a.str("payload_base64")); string(got) != want {
			t.Errorf("%.200s as base64: %.300s", c.in, got)
		}
		a = e.want(200, "POST", "/v1/queues/q/claim", `{"wait":"10s"}`)
		if !strings.Contains(a.raw, `"payload":`+want+`,"headers"`) {
			t.Errorf("%.200s claimed: %.300s", c.in, a.raw)
		}
		e.want(200, "DELETE", "/v1/queues/q/tasks/x?force=true", "")
	}
}

func TestBytesThatAreNoJSONComeAsBase64(t *testing.T) {
	st := memstore.New(nil)
	t.Cleanup(func() { st.Close() })
	e := start(t, st, nil)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, payload := range [][]byte{all, []byte("hello"), []byte(`{"a":1} x`), []byte("\"\xff\""), []byte(`"\ud800"`), []byte(`{"a":1,"a":2}`), nil, []byte(" ")} {
		id := fmt.Sprint(i)
		if _, err := st.Schedule(t.Context(), []store.NewTask{{Queue: "q", ID: id, Payload: payload}}); err != nil {
			t.Fatal(err)
		}
		a := e.want(200, "GET", "/v1/queues/q/tasks/"+id, "")
		got, err := base64.StdEncoding.DecodeString(a.str("payload_base64"))
		if _, there := a.doc["payload_base64"]; !there || err != nil || string(got) != string(payload) {
			t.Errorf("%q: %s", payload, a.raw)
		}
		if _, there := a.doc["payload"]; there {
			t.Errorf("%q is shown as JSON: %s", payload, a.raw)
		}
	}
}
