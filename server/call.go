package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

// How long a client may take to send a body, and to take an answer.
const (
	readTimeout  = time.Minute
	writeTimeout = time.Minute
)

// call is one request while it is handled.
type call struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	route  *route
	params params
	query  url.Values

	limited context.Context // see ctx
	cancel  context.CancelFunc
}

// storeTimeout is for how long a store is waited for that does not answer: a client
// is told so before it gives up itself, and repeats the call.
const storeTimeout = 20 * time.Second

// ctx is that of the store's calls that take moments. The others have the request's:
// those that wait for tasks, hand some out that would be lost, or work through a queue.
func (c *call) ctx() context.Context {
	if c.limited == nil {
		c.limited, c.cancel = context.WithTimeout(c.r.Context(), cmp.Or(c.s.opts.storeTimeout, storeTimeout))
	}
	return c.limited
}

// handleCall is what a route does. It answers, or returns an error that is
// answered as a problem document.
type handleCall func(c *call) error

// serve runs a route. The query is checked before the body is read.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt *route, p params) error {
	c := &call{s: s, w: w, r: r, route: rt, params: p}
	if err := c.readQuery(); err != nil {
		return err
	}
	if p.queue != "" {
		if err := store.CheckQueue(p.queue); err != nil {
			return err
		}
	}
	err := rt.handle(c)
	if c.cancel != nil {
		c.cancel()
	}
	return err
}

func (c *call) readQuery() error {
	if c.r.URL.RawQuery == "" || c.route.tag == tagServer {
		return nil // probes and scrapers add what they like
	}
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return store.NewInputError("query", c.r.URL.RawQuery, "is not well formed: %v", err)
	}
	for name, values := range query {
		if !slices.ContainsFunc(c.route.query, func(q queryParam) bool { return q.name == name }) {
			known := make([]string, len(c.route.query))
			for i, q := range c.route.query {
				known[i] = q.name
			}
			if len(known) == 0 {
				return store.NewInputError("query", name, "is not a known parameter; this call has none")
			}
			return store.NewInputError("query", name, "is not a known parameter; known are %s", strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return store.NewInputError("query."+name, values[1], "is given twice")
		}
	}
	c.query = query
	return nil
}

// id is the task's id, from the path or, on /task?id=, from the query.
func (c *call) id() (string, error) {
	id := c.params.id
	if id == "" {
		if !c.query.Has("id") {
			return "", store.NewInputError("query.id", "", "is missing, must be the task's id, as in /v1/queues/orders/task?id=order-1")
		}
		id = c.query.Get("id")
	}
	return id, store.CheckID(id)
}

func (c *call) queryBool(name string) (bool, error) {
	if !c.query.Has(name) {
		return false, nil
	}
	switch v := c.query.Get(name); v {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, store.NewInputError("query."+name, v, "must be true or false")
	}
}

func (c *call) queryInt(name string) (int, error) {
	if !c.query.Has(name) {
		return 0, nil
	}
	v := c.query.Get(name)
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, store.NewInputError("query."+name, v, "must be a whole number")
	}
	return n, nil
}

// payloads is how the client wants payloads shown.
func (c *call) payloads(def wire.Payloads) (wire.Payloads, error) {
	if !c.query.Has("payload") {
		return def, nil
	}
	switch p := wire.Payloads(c.query.Get("payload")); p {
	case wire.PayloadAsJSON, wire.PayloadAsBase64, wire.PayloadNone:
		return p, nil
	default:
		return "", store.NewInputError("query.payload", string(p), "must be json, base64 or none")
	}
}

// mediaType checks that the body is of a type that the call takes.
func (c *call) mediaType() (string, error) {
	header := c.r.Header.Get("Content-Type")
	if header == "application/json" { // nearly always
		return header, nil
	}
	accepted := append([]string{"application/json"}, c.route.alsoTakes...)
	got, parameters, err := mime.ParseMediaType(header)
	charset := parameters["charset"]
	if err == nil && slices.Contains(accepted, got) && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return got, nil
	}
	// A form is what a browser sends without asking the user, and curl without -H.
	return "", &failure{status: http.StatusUnsupportedMediaType, err: wireError(wire.CodeMediaType, "Content-Type", header,
		"must be "+strings.Join(accepted, " or ")+", as in: curl -H 'Content-Type: application/json'")}
}

// body reads the whole body, up to the call's limit.
func (c *call) body() (data []byte, mediaType string, err error) {
	if c.r.ContentLength == 0 {
		if c.route.emptyBody {
			return []byte("{}"), "application/json", nil
		}
		return nil, "", store.NewInputError(wire.Body, "", "is empty, must be a JSON object")
	}
	if mediaType, err = c.mediaType(); err != nil {
		return nil, "", err
	}
	if coding := c.r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, "", &failure{status: http.StatusUnsupportedMediaType, err: wireError(wire.CodeMediaType, "Content-Encoding", coding, "is not supported, send the body as it is")}
	}
	limit := c.route.limit(c.s)
	if c.r.ContentLength > limit {
		c.w.Header().Set("Connection", "close") // rather than read it all
		return nil, "", bodyTooLarge(fmt.Sprintf("(%d bytes)", c.r.ContentLength), limit)
	}
	if c.r.ContentLength > bigBody || c.r.ContentLength < 0 && limit > bigBody {
		select {
		case c.s.bigBodies <- struct{}{}:
			defer func() { <-c.s.bigBodies }()
		case <-c.r.Context().Done():
			return nil, "", c.r.Context().Err()
		}
	}
	var buffer bytes.Buffer
	if c.r.ContentLength > 0 {
		buffer.Grow(int(c.r.ContentLength) + bytes.MinRead)
	}
	_, err = buffer.ReadFrom(http.MaxBytesReader(c.w, c.r.Body, limit))
	var max *http.MaxBytesError
	switch {
	case errors.As(err, &max):
		return nil, "", bodyTooLarge("", limit)
	case err != nil:
		return nil, "", store.NewInputError(wire.Body, fmt.Sprintf("(%d bytes)", buffer.Len()), "ended early: %v", bodyError(err))
	}
	if buffer.Len() == 0 && c.route.emptyBody {
		return []byte("{}"), mediaType, nil
	}
	return buffer.Bytes(), mediaType, nil
}

// bodyError says what went wrong without addresses in it.
func bodyError(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed"
	}
	return "it could not be read in time"
}

func bodyTooLarge(size string, limit int64) error {
	return tooLarge(wire.Body, size, "is too large, the limit is %d bytes", limit)
}

// decode reads a body that is a JSON object.
func (c *call) decode(v any) error {
	data, _, err := c.body()
	if err != nil {
		return err
	}
	return wire.Decode(data, v)
}

// answer sends v. The error is that of the connection: nobody is left to tell.
func (c *call) answer(status int, v any) error {
	return c.s.writeJSON(c.w, status, "application/json", v)
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, mediaType string, v any) error {
	data, err := wire.Encode(v)
	if err != nil {
		// Text of the store that is no UTF-8, at worst; a client must not see half an
		// answer.
		s.log.Error("an answer can not be written as JSON", "error", err)
		http.Error(w, `{"title":"Internal Server Error","status":500,"code":"internal","problem":"the answer can not be written as JSON"}`, http.StatusInternalServerError)
		return nil
	}
	h := w.Header()
	h["Content-Type"] = []string{mediaType}
	h["Content-Length"] = []string{strconv.Itoa(len(data) + 1)}
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		return &goneError{err}
	}
	return nil
}

// goneError: the client went away while the answer was written.
type goneError struct{ err error }

func (e *goneError) Error() string { return "client has gone: " + e.err.Error() }

// fail answers with a problem document.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, name string, err error) {
	var gone *goneError
	if errors.As(err, &gone) {
		s.log.Debug("client went away", "call", name, "error", gone.err)
		return
	}
	f := asFailure(err)
	switch {
	case f.status == http.StatusServiceUnavailable && r.Context().Err() != nil:
		return // nobody is left to tell
	case f.status >= 500 && f.status != http.StatusNotImplemented:
		s.repeats.say(slog.LevelError, "call failed", err.Error(), "call", name, "status", f.status, "error", err)
	default:
		s.log.Debug("call refused", "call", name, "status", f.status, "field", f.err.Field, "problem", f.err.Problem)
	}
	if f.allow != "" {
		w.Header().Set("Allow", f.allow)
	}
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	_ = s.writeJSON(w, f.status, "application/problem+json", problem{Title: http.StatusText(f.status), Status: f.status, Detail: f.Error(), Error: *f.err})
}
