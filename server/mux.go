package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// mux finds the route of a request. It goes by the path as it was sent: the id
// of a task may hold a slash (%2F) or be "..", and net/http's own mux would clean
// such a path and redirect.
type mux struct {
	byLength map[int][]*pattern // of segments
}

// pattern is a path with the calls on it by method.
type pattern struct {
	segments []string // "{queue}" is a parameter
	routes   map[string]*route
}

func (m *mux) add(rt *route) {
	segments := strings.Split(strings.TrimPrefix(rt.path, "/"), "/")
	for _, p := range m.byLength[len(segments)] {
		if slices.Equal(p.segments, segments) {
			p.routes[rt.method] = rt
			return
		}
	}
	if m.byLength == nil {
		m.byLength = map[int][]*pattern{}
	}
	p := &pattern{segments: segments, routes: map[string]*route{rt.method: rt}}
	m.byLength[len(segments)] = append(m.byLength[len(segments)], p)
}

// params are the values of a path's parameters.
type params struct{ queue, id string }

// find returns the pattern that a path fits, nil if none. Where there are
// several, that which has the method: /tasks/batch is a call, and a task.
func (m *mux) find(method, escapedPath string) (found *pattern, values params) {
	var stack [8]string
	segments := stack[:0]
	for s := range strings.SplitSeq(strings.TrimPrefix(escapedPath, "/"), "/") {
		if len(segments) == len(stack) {
			return nil, values
		}
		segments = append(segments, s)
	}
	for _, p := range m.byLength[len(segments)] {
		v, ok := p.match(segments)
		if ok && (found == nil || p.routes[method] != nil) {
			found, values = p, v
		}
		if ok && p.routes[method] != nil {
			break
		}
	}
	return found, values
}

func (p *pattern) match(segments []string) (values params, ok bool) {
	for i, want := range p.segments {
		if !strings.HasPrefix(want, "{") { // want is empty in the path /
			if segments[i] != want {
				return values, false
			}
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil || value == "" {
			return values, false
		}
		if want == "{queue}" {
			values.queue = value
		} else {
			values.id = value
		}
	}
	return values, true
}

// allow lists the methods of a pattern for the Allow header.
func (p *pattern) allow() string {
	methods := make([]string, 0, len(p.routes)+1)
	for m := range p.routes {
		methods = append(methods, m)
	}
	if p.routes[http.MethodGet] != nil {
		methods = append(methods, http.MethodHead)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

// route finds the route of a request, and otherwise says what is wrong.
func (m *mux) route(r *http.Request) (*route, params, error) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	p, values := m.find(method, r.URL.EscapedPath())
	if p == nil {
		problem := "there is nothing here; see /docs"
		if strings.HasPrefix(r.URL.Path, "/v1/queues/") && strings.Contains(r.URL.Path, "/tasks/") {
			problem += ". A slash in an id is written %2F in a path; or give the id as in /v1/queues/orders/task?id=a/b"
		}
		return nil, values, notFound("path", r.URL.EscapedPath(), problem)
	}
	rt := p.routes[method]
	if rt == nil {
		return nil, values, &failure{
			status: http.StatusMethodNotAllowed, allow: p.allow(),
			err: wireError(codeMethod, "method", r.Method, "is not allowed here, must be "+p.allow()),
		}
	}
	return rt, values, nil
}
