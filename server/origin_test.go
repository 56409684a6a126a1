package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/duetime/duetime/store/memstore"
)

func TestPathsWithNothingThere(t *testing.T) {
	e := start(t, nil, nil)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, method := range []string{"GET", "HEAD"} {
		resp, err := client.Do(e.request(t.Context(), method, "/", ""))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 302 || resp.Header.Get("Location") != "/docs" {
			t.Errorf("%s /: %d, Location %q", method, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
	if a := e.want(200, "GET", "/", ""); !strings.Contains(a.raw, "duetime HTTP API") {
		t.Errorf("/ leads to %.100s", a.raw)
	}
	for _, path := range []string{"/nope", "/v1", "/favicon.ico", "//", "/v1/", "/v1//tasks", "/nope/x/y/z/a/b/c/d/e/f"} {
		if field, value, _ := e.want(404, "GET", path, "").problemOf(t); field != "path" || !strings.Contains(value, path) {
			t.Errorf("%s: %s %s", path, field, value)
		}
	}
	if a := e.want(200, "GET", "/metrics", ""); !strings.Contains(a.raw, `duetime_http_requests_total{call="none",status="404"} 7`) {
		t.Errorf("metrics do not count them:\n%s", a.raw)
	}
	e.want(405, "POST", "/", "")
}

func TestPanicsAreAnsweredAndLogged(t *testing.T) {
	e := start(t, nil, nil)
	// A route that is no route: finding it panics.
	e.server.mux.byLength[7] = []*pattern{nil}
	if field, _, problem := e.want(500, "GET", "/1/2/3/4/5/6/7", "").problemOf(t); field != "" || !strings.Contains(problem, "bug") {
		t.Errorf("%s %s", field, problem)
	}
	e.server.mux.add(&route{method: "POST", path: "/half", name: "half", tag: tagServer, handle: func(c *call) error {
		c.w.WriteHeader(200)
		_, _ = io.WriteString(c.w, "half")
		panic(http.ErrAbortHandler)
	}})
	if resp, err := http.DefaultClient.Do(e.request(t.Context(), "POST", "/half", "")); err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Error("half an answer came as a whole one")
		}
	}
	if a := e.want(200, "GET", "/metrics", ""); !strings.Contains(a.raw, `duetime_http_requests_total{call="none",status="500"} 1`) {
		t.Errorf("metrics do not count it:\n%s", a.raw)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(e.log.String(), `level=ERROR msg="a call panicked"`); n != 2 {
		t.Errorf("%d panics are in the log, want 2:\n%s", n, e.log)
	}
}

// as sends a GET that calls the server by another name.
func (e *env) as(method, host string, headers ...string) answer {
	e.t.Helper()
	req := e.request(e.t.Context(), method, "/v1/queues/q/pause", "", headers...)
	if method == "GET" {
		req.URL.Path = "/v1/queues"
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
}

func TestOnlyOwnNamesAreServedOnLoopback(t *testing.T) {
	e := start(t, nil, &Options{Hosts: []string{"Tasks.example"}})
	plain := start(t, nil, nil)
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:7333": true, "LOCALHOST:1": true, "localhost.": true, "a.localhost:7333": true,
		"127.0.0.1": true, "127.0.0.1:9": true, "[::1]": true, "[::1]:7333": true, "192.168.1.7:7333": true,
		"evil.com": false, "evil.com:7333": false, "localhost.evil.com": false, "notlocalhost": false,
		"127.0.0.1.evil.com": false, "127.1.evil": false, "tasks.example.evil.com:80": false,
	} {
		for _, e := range []*env{e, plain} {
			for _, method := range []string{"GET", "POST"} {
				for _, headers := range [][]string{nil, {"Sec-Fetch-Site", "same-origin", "Origin", "http://" + host}} {
					a := e.as(method, host, headers...)
					if ok && a.status != 200 {
						t.Errorf("%s with Host %s: %d %s", method, host, a.status, a.raw)
					}
					if !ok && (a.status != 403 || !strings.Contains(a.raw, `"field":"Host","value":"\"`+host)) {
						t.Errorf("%s with Host %s: %d %s", method, host, a.status, a.raw)
					}
				}
			}
		}
	}
	if a := e.as("POST", "tasks.example:80", "Sec-Fetch-Site", "same-origin"); a.status != 200 {
		t.Errorf("a name of the list: %d %s", a.status, a.raw)
	}
	if a := plain.as("POST", "tasks.example:80", "Sec-Fetch-Site", "same-origin"); a.status != 403 {
		t.Errorf("a name of another's list: %d %s", a.status, a.raw)
	}
}

// elsewhere is a listener that says it has an address that others reach.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 7333} }

func TestOtherAddressesAreServedUnderAnyName(t *testing.T) {
	st := memstore.New(nil)
	defer st.Close()
	srv, err := New(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, elsewhere{l}) }()
	e := &env{t: t, url: "http://" + l.Addr().String()}
	if a := e.as("GET", "tasks.internal:7333"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	// As a part of another's server the address is not known.
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, httptest.NewRequest("GET", "http://tasks.internal/v1/queues", nil))
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
