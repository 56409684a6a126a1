package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duetime/duetime/internal/wire"
)

// describe writes the OpenAPI document of the routes. The schemas come from the
// types that bodies are read into and written from, so that they can not drift.
func describe(routes []*route, version string) ([]byte, error) {
	if version == "" {
		version = "0"
	}
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[jsontext.Value](), reflect.TypeFor[json.RawMessage]())
	for _, p := range []interface{ Plain() reflect.Type }{
		wire.Patch[bool]{}, wire.Patch[int]{}, wire.Patch[float64]{}, wire.Patch[string]{}, wire.Patch[wire.Duration]{}, wire.Patch[wire.BackoffPatch]{},
	} {
		registry.RegisterTypeAlias(reflect.TypeOf(p), p.Plain())
	}
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "duetime", Version: version, License: &huma.License{Name: "MIT", Identifier: "MIT"},
			Description: "Delayed tasks that run once, on time, never lost. Times are RFC 3339 with zone; durations are Go's (30m, 250ms) or ISO 8601 (PT30M); bare numbers are refused as either. " +
				"JSON is read strictly: fields that are unknown or given twice and text after the end are refused. Errors are RFC 9457 problem documents that name the field, its value and the limit.",
		},
		Components: &huma.Components{Schemas: registry},
	}
	schema := func(v any) *huma.Schema { return registry.Schema(reflect.TypeOf(v), true, "") }
	problemContent := map[string]*huma.MediaType{"application/problem+json": {Schema: schema(problem{})}}
	for _, rt := range routes {
		if rt.tag == "" {
			continue
		}
		op := &huma.Operation{
			OperationID: rt.name, Method: rt.method, Path: rt.path, Summary: rt.summary, Description: rt.about,
			Tags: []string{rt.tag}, Responses: map[string]*huma.Response{},
		}
		for _, name := range []string{"queue", "id"} {
			if slices.Contains(pathParams(rt.path), name) {
				op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
			}
		}
		for in, params := range map[string][]queryParam{"query": rt.query, "header": rt.header} {
			for _, q := range params {
				ps := &huma.Schema{Type: q.kind}
				for _, e := range q.enum {
					ps.Enum = append(ps.Enum, e)
				}
				op.Parameters = append(op.Parameters, &huma.Param{Name: q.name, In: in, Description: q.about, Required: q.required, Schema: ps})
			}
		}
		if rt.request != nil {
			op.RequestBody = &huma.RequestBody{Required: !rt.emptyBody, Content: map[string]*huma.MediaType{"application/json": {Schema: schema(rt.request)}}}
			for _, t := range rt.alsoTakes {
				op.RequestBody.Content[t] = &huma.MediaType{Schema: schema(rt.request)}
				if t == ndjson || t == "application/ndjson" {
					op.RequestBody.Content[t] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "One task a line."}}
				}
			}
		}
		status := rt.status
		if status == nil {
			status = []int{http.StatusOK}
		}
		for _, code := range status {
			r := &huma.Response{Description: http.StatusText(code)}
			if rt.answer != nil {
				r.Content = map[string]*huma.MediaType{"application/json": {Schema: schema(rt.answer)}}
			}
			if rt.stream {
				r.Content = map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}
			}
			op.Responses[strconv.Itoa(code)] = r
		}
		fails := append([]int{http.StatusBadRequest, http.StatusServiceUnavailable}, rt.fails...)
		if rt.tag == tagServer {
			fails = nil
			if rt.name == "readyz" {
				op.Responses["503"] = &huma.Response{Description: "Not ready.", Content: map[string]*huma.MediaType{"application/json": {Schema: schema(readiness{})}}}
			}
		}
		for _, code := range fails {
			op.Responses[strconv.Itoa(code)] = &huma.Response{Description: http.StatusText(code), Content: problemContent}
		}
		api.AddOperation(op)
	}
	data, err := json.Marshal(api)
	if err != nil {
		return nil, fmt.Errorf("server: the OpenAPI document can not be written: %w", err)
	}
	return data, nil
}

func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if name == "Problem" || name == "problem" {
		return "Problem"
	}
	return name
}

func pathParams(path string) []string {
	var names []string
	for _, s := range []string{"queue", "id"} {
		if containsParam(path, s) {
			names = append(names, s)
		}
	}
	return names
}
