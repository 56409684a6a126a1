package server

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

func containsParam(path, name string) bool { return strings.Contains(path, "{"+name+"}") }

// page sends a page that is ready made.
func (c *call) page(mediaType string, data []byte) error {
	h := c.w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("X-Content-Type-Options", "nosniff")
	// Nothing is loaded from anywhere, and nothing runs.
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	c.w.WriteHeader(http.StatusOK)
	if _, err := c.w.Write(data); err != nil {
		return &goneError{err}
	}
	return nil
}

type docsGroup struct {
	Name  string
	Calls []docsCall
}

type docsCall struct {
	Method, Path, Name, Summary, About string
	Params, Fields, Answer             []docsField
	Status                             string
}

type docsField struct{ Name, Type, About string }

// docsPage writes the routes for people, as one page that needs nothing else.
func docsPage(routes []*route) ([]byte, error) {
	var groups []docsGroup
	for _, tag := range []string{tagTasks, tagWork, tagQueues, tagBatch, tagServer} {
		g := docsGroup{Name: tag}
		for _, rt := range routes {
			if rt.tag != tag {
				continue
			}
			d := docsCall{
				Method: rt.method, Path: rt.path, Name: rt.name, Summary: rt.summary, About: rt.about,
				Fields: fieldsOf(rt.request), Answer: fieldsOf(rt.answer), Status: "200",
			}
			if rt.status != nil {
				d.Status = strings.Trim(strings.ReplaceAll(fmt.Sprint(rt.status), " ", ", "), "[]")
			}
			for _, q := range append(append([]queryParam{}, rt.query...), rt.header...) {
				kind := q.kind
				if q.enum != nil {
					kind = strings.Join(q.enum, " | ")
				}
				d.Params = append(d.Params, docsField{q.name, kind, q.about})
			}
			g.Calls = append(g.Calls, d)
		}
		groups = append(groups, g)
	}
	var b bytes.Buffer
	if err := docsTemplate.Execute(&b, groups); err != nil {
		return nil, fmt.Errorf("server: the page of documents can not be written: %w", err)
	}
	return b.Bytes(), nil
}

// fieldsOf lists the fields of a body, those of arrays and objects in it too.
func fieldsOf(v any) []docsField {
	if v == nil {
		return nil
	}
	var list []docsField
	addFields(&list, "", reflect.TypeOf(v), 0)
	return list
}

func addFields(list *[]docsField, prefix string, t reflect.Type, depth int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || depth > 3 {
			continue
		}
		kind, inner := plainType(f.Type)
		*list = append(*list, docsField{prefix + name, kind, f.Tag.Get("doc")})
		if inner != nil {
			suffix := "."
			if kind == "array" {
				suffix = "[]."
			}
			addFields(list, prefix+name+suffix, inner, depth+1)
		}
	}
}

// plainType names a type for people, and returns the struct within, if any.
func plainType(t reflect.Type) (name string, inner reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p, ok := reflect.Zero(t).Interface().(interface{ Plain() reflect.Type }); ok {
		return plainType(p.Plain())
	}
	switch t.Name() {
	case "Duration":
		return "duration", nil
	case "Time":
		return "time", nil
	case "Value":
		return "any JSON", nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return "object", t
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "base64", nil
		}
		name, inner := plainType(t.Elem())
		if inner == nil {
			return "array of " + name, nil
		}
		return "array", inner
	case reflect.Map:
		return "object of strings", nil
	case reflect.Bool:
		return "true or false", nil
	case reflect.Int, reflect.Int64:
		return "whole number", nil
	case reflect.Float64:
		return "number", nil
	}
	return "string", nil
}

var docsTemplate = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>duetime HTTP API</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1,h2{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid #ccc}
code,pre{font:13px/1.5 ui-monospace,monospace;background:#f4f4f4;border-radius:3px}
code{padding:.1em .3em}pre{padding:.8rem;overflow-x:auto}
details{border:1px solid #ddd;border-radius:4px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}summary b{display:inline-block;min-width:4.5rem;font:bold 12px ui-monospace,monospace}
table{border-collapse:collapse;width:100%;margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.25rem .6rem;border-top:1px solid #eee}
td:first-child{white-space:nowrap}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code,pre{background:#282828}details,td,th,h2{border-color:#444}a{color:#8bf}}
</style></head><body>
<h1>duetime HTTP API</h1>
<p>Delayed tasks that run once, on time, never lost. For programs: <a href="/openapi.json">openapi.json</a>.</p>
<pre>curl -H 'Content-Type: application/json' http://127.0.0.1:7333/v1/queues/orders/tasks \
     -d '{"id":"order-1001","payload":{"amount":12},"delay":"5s"}'
curl -H 'Content-Type: application/json' http://127.0.0.1:7333/v1/queues/orders/claim \
     -d '{"wait":"20s","lease":"30s"}'
curl -H 'Content-Type: application/json' http://127.0.0.1:7333/v1/ack -d '{"receipts":["…"]}'</pre>
<p>Bodies are JSON and read strictly: fields that are unknown or given twice are refused. Times are RFC 3339 with
zone (<code>2030-01-31T07:00:00+08:00</code>); durations are <code>30m</code>, <code>1h30m</code>, <code>250ms</code>
or <code>PT30M</code>; a bare number is neither. Errors are <code>application/problem+json</code> (RFC 9457) and name
the field, its value and the limit. An id in a path is escaped (a slash is <code>%2F</code>); where that is hard, as
for <code>.</code> and <code>..</code>, use <code>/v1/queues/{queue}/task?id=</code>.</p>
{{range .}}<h2>{{.Name}}</h2>
{{range .Calls}}<details id="{{.Name}}"><summary><b>{{.Method}}</b> <code>{{.Path}}</code> {{.Summary}}</summary>
{{with .About}}<p>{{.}}</p>{{end}}
{{with .Params}}<table><tr><th>Parameter<th>Type<th>{{range .}}<tr><td><code>{{.Name}}</code><td>{{.Type}}<td>{{.About}}{{end}}</table>{{end}}
{{with .Fields}}<table><tr><th>Body<th>Type<th>{{range .}}<tr><td><code>{{.Name}}</code><td>{{.Type}}<td>{{.About}}{{end}}</table>{{end}}
{{with .Answer}}<table><tr><th>Answer<th>Type<th>{{range .}}<tr><td><code>{{.Name}}</code><td>{{.Type}}<td>{{.About}}{{end}}</table>{{end}}
<p>Status {{.Status}}</p></details>
{{end}}{{end}}</body></html>
`))
