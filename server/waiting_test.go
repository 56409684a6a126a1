package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
)

func (e *env) schedule(tasks ...store.NewTask) {
	e.t.Helper()
	for i := range tasks {
		if tasks[i].Queue == "" {
			tasks[i].Queue = "q"
		}
	}
	results, err := e.store.Schedule(e.t.Context(), tasks)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := range results {
		if results[i].Err != nil {
			e.t.Fatal(results[i].Err)
		}
	}
}

func (e *env) stats() store.Stats {
	e.t.Helper()
	s, err := e.store.Stats(e.t.Context(), "q")
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

// waiting says how many claims wait at the server.
func (e *env) waiting() int { return e.server.dispatch.Health().Waiting }

// background does a call and delivers its answer.
func (e *env) background(ctx context.Context, path, body string) <-chan answer {
	got := make(chan answer, 1)
	req := e.request(ctx, "POST", path, body)
	go func() {
		defer close(got)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return
		}
		a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
		_ = json.Unmarshal(raw, &a.doc)
		got <- a
	}()
	return got
}

func TestClaimWaitsUntilATaskIsDue(t *testing.T) {
	e := start(t, nil, nil)
	got := e.background(t.Context(), "/v1/queues/q/claim", `{"wait":"60s"}`)
	eventually(t, "the claim waits", func() bool { return e.waiting() == 1 })
	e.want(201, "POST", "/v1/queues/q/tasks", `{"id":"later","delay":"1h"}`)
	e.want(201, "POST", "/v1/queues/q/tasks", `{"id":"soon","delay":"300ms"}`)
	a := <-got
	task := a.task(t, 0)
	due, _ := time.Parse(time.RFC3339Nano, task["due_at"].(string))
	claimed, _ := time.Parse(time.RFC3339Nano, task["claimed_at"].(string))
	if late := claimed.Sub(due); task["id"] != "soon" || late < 0 || late > 200*time.Millisecond {
		t.Errorf("%v late: %s", late, a.raw)
	}
}

func TestWaitEnds(t *testing.T) {
	e := start(t, nil, nil)
	begin := time.Now()
	a := e.want(200, "POST", "/v1/queues/q/claim", `{"wait":"50ms"}`)
	if took := time.Since(begin); a.raw != "{\"tasks\":[]}\n" || took < 50*time.Millisecond {
		t.Errorf("after %v: %s", took, a.raw)
	}
	if e.waiting() != 0 {
		t.Error("it still waits")
	}
}

func TestWaitIsEndedByName(t *testing.T) {
	e := start(t, nil, nil)
	got := e.background(t.Context(), "/v1/queues/q/claim", `{"wait":"60s","wait_id":"mine"}`)
	other := e.background(t.Context(), "/v1/queues/q/claim", `{"wait":"60s","wait_id":"other"}`)
	eventually(t, "the claims wait", func() bool { return e.waiting() == 2 })
	if a := e.want(200, "POST", "/v1/claims/end", `{"wait_ids":["mine","nobody's"]}`); a.doc["ended"] != 1.0 {
		t.Error(a.raw)
	}
	if a := <-got; a.raw != "{\"tasks\":[]}\n" {
		t.Error(a.raw)
	}
	e.schedule(store.NewTask{ID: "x"})
	if a := <-other; a.task(t, 0)["id"] != "x" {
		t.Error(a.raw)
	}
	if a := e.want(200, "POST", "/v1/claims/end", `{"wait_ids":["mine","other"]}`); a.doc["ended"] != 0.0 {
		t.Error(a.raw)
	}
}

// A client that goes away while it waits leaves nothing behind, and what comes
// later goes to others at once.
func TestGoneClientGetsNothing(t *testing.T) {
	e := start(t, nil, nil)
	ctx, leave := context.WithCancel(t.Context())
	gone := e.background(ctx, "/v1/queues/q/claim", `{"wait":"60s","lease":"1h"}`)
	eventually(t, "the claim waits", func() bool { return e.waiting() == 1 })
	leave()
	<-gone
	eventually(t, "its leaving is noticed", func() bool { return e.waiting() == 0 })
	e.schedule(store.NewTask{ID: "x"})
	if a := e.want(200, "POST", "/v1/queues/q/claim", `{"wait":"10s"}`); a.task(t, 0)["attempt"] != 1.0 {
		t.Error(a.raw)
	}
}

// The connection breaks while tasks are on their way to the client: a payload
// larger than the buffers in between, and a client that does not read.
func TestClientGoneInTheMiddleOfItsAnswer(t *testing.T) {
	e := start(t, memstore.New(&memstore.Options{MaxPayload: 32 << 20}), &Options{MaxBatchBody: 64 << 20})
	big := make([]byte, 24<<20)
	e.schedule(store.NewTask{ID: "big", Payload: big})
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"wait":"60s","lease":"1h"}`
	fmt.Fprintf(conn, "POST /v1/queues/q/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	if s := e.stats(); s.Leased != 1 {
		t.Fatalf("%+v: the answer is not on its way", s)
	}
	conn.Close()
	eventually(t, "the task is given back", func() bool { return e.stats().Ready == 1 })
	if a := e.do("POST", "/v1/queues/q/claim?payload=none", `{"wait":"10s"}`); a.task(t, 0)["attempt"] != 1.0 {
		t.Error(a.raw)
	}
}

// Clients leave at the moment when tasks are due. What none of them got must not
// stay leased.
func TestClientsLeaveAsTasksAreDue(t *testing.T) {
	e := start(t, nil, nil)
	var mu sync.Mutex
	got := map[string]int{}
	var clients sync.WaitGroup
	for i := range 100 {
		id := fmt.Sprint(i)
		ctx, leave := context.WithTimeout(t.Context(), time.Duration(10+i%7)*time.Millisecond)
		clients.Go(func() {
			defer leave()
			for a := range e.background(ctx, "/v1/queues/q/claim", `{"wait":"60s","lease":"1h"}`) {
				tasks := a.doc["tasks"].([]any)
				mu.Lock()
				for _, x := range tasks {
					got[x.(map[string]any)["id"].(string)]++
				}
				mu.Unlock()
			}
		})
		e.schedule(store.NewTask{ID: id, Delay: time.Duration(10+i%5) * time.Millisecond})
	}
	clients.Wait()
	eventually(t, "nobody waits", func() bool { return e.waiting() == 0 })
	// A client that closes its connection after the answer was written can not be
	// told from one that read it: those tasks have to wait for their leases.
	s := e.stats()
	t.Logf("%d taken, %d leased, %d given back or never out", len(got), s.Leased, s.Ready)
	if int(s.Leased)+int(s.Ready)+int(s.Scheduled) != 100 || int(s.Leased) < len(got) {
		t.Errorf("%d taken, but %+v", len(got), s)
	}
	for id, n := range got {
		if n > 1 {
			t.Errorf("%s was handed out %d times", id, n)
		}
	}
}

func TestGracefulStop(t *testing.T) {
	inner := memstore.New(nil)
	t.Cleanup(func() { inner.Close() })
	slow := &gated{Store: inner, enter: make(chan struct{}), leave: make(chan struct{})}
	e := start(t, slow, nil)
	waits := make([]<-chan answer, 5)
	for i := range waits {
		waits[i] = e.background(t.Context(), "/v1/queues/q/claim", `{"wait":"60s"}`)
	}
	eventually(t, "the claims wait", func() bool { return e.waiting() == len(waits) })
	wake := e.background(t.Context(), "/v1/queues/q/claim", `{"wait":"1ms"}`)
	<-wake
	inFlight := e.background(t.Context(), "/v1/queues/slow/tasks", `{"id":"x","delay":"1h"}`)
	<-slow.enter
	stopped := make(chan error, 1)
	go func() { stopped <- e.stop() }()
	begin := time.Now()
	for _, w := range waits {
		if a := <-w; a.status != 200 || a.raw != "{\"tasks\":[]}\n" {
			t.Errorf("a waiting claim was answered %d %s", a.status, a.raw)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("waiting claims were answered after %v", took)
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a request in flight: %v", err)
	default:
	}
	// The claims may be answered a moment before the listener is closed.
	eventually(t, "no new connections are taken", func() bool {
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(e.url, "http://"), time.Second)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(slow.leave)
	if a := <-inFlight; a.status != 201 {
		t.Errorf("the request in flight was answered %d %s", a.status, a.raw)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// gated holds Schedule into the queue "slow" until it is let go.
type gated struct {
	store.Store
	enter, leave chan struct{}
}

func (g *gated) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if tasks[0].Queue == "slow" {
		g.enter <- struct{}{}
		<-g.leave
	}
	return g.Store.Schedule(ctx, tasks)
}

func TestStopDoesNotWaitForUnusedConnections(t *testing.T) {
	e := start(t, nil, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	e.want(200, "GET", "/healthz", "") // by now the server has taken both
	begin := time.Now()
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	inner := memstore.New(nil)
	t.Cleanup(func() { inner.Close() })
	slow := &gated{Store: inner, enter: make(chan struct{}), leave: make(chan struct{})}
	e := start(t, slow, &Options{StopTimeout: 50 * time.Millisecond})
	e.background(t.Context(), "/v1/queues/slow/tasks", `{"id":"x"}`)
	<-slow.enter
	if err := e.stop(); err == nil || !strings.Contains(err.Error(), "still running 50ms after") {
		t.Errorf("error %v", err)
	}
	close(slow.leave)
}

func TestWakeStream(t *testing.T) {
	e := start(t, nil, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp, err := http.DefaultClient.Do(e.request(ctx, "GET", "/v1/queues/q/wake", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Error(got)
	}
	lines := bufio.NewScanner(resp.Body)
	event := func() string {
		var b strings.Builder
		for lines.Scan() && lines.Text() != "" {
			b.WriteString(lines.Text() + "\n")
		}
		return b.String()
	}
	const want = "event: wake\ndata: {}\n"
	if got := event(); got != want {
		t.Fatalf("first %q", got)
	}
	e.schedule(store.NewTask{ID: "x"})
	if got := event(); got != want {
		t.Fatalf("after a task %q", got)
	}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	e := start(t, nil, nil)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	ctx, leave := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := client.Do(e.request(ctx, "POST", "/v1/queues/q/claim", `{"wait":"60s"}`))
		waiting <- err
	}()
	eventually(t, "the claim waits", func() bool { return e.waiting() == 1 })
	resp, err := client.Do(e.request(t.Context(), "POST", "/v1/queues/other/tasks", `{"id":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != 201 {
		t.Errorf("%s %s", resp.Proto, resp.Status)
	}
	leave() // a stream is reset, the connection stays
	if err := <-waiting; err == nil {
		t.Error("no error")
	}
	eventually(t, "its leaving is noticed", func() bool { return e.waiting() == 0 })
}
