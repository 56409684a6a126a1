package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/remotestore"
)

// plainHTTP schedules by one POST for each task, over one connection for each
// producer, as a program in another language does.
type plainHTTP struct {
	client *http.Client
	url    string
	after  func(ctx context.Context) error // takes the tasks away
	end    func()
}

func newPlainHTTP(url string, after func(context.Context) error, end func()) *plainHTTP {
	return &plainHTTP{url: url, after: after, end: end, client: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: singleProducers, MaxConnsPerHost: singleProducers,
	}}}
}

// request is what the API takes, and the echo answers.
type request struct {
	ID      string `json:"id"`
	Payload string `json:"payload"`
	DueAt   string `json:"due_at"`
}

func (p *plainHTTP) reset(ctx context.Context) error { return p.after(ctx) }

func (p *plainHTTP) put(ctx context.Context, _, from, to int, due func(int) time.Time) error {
	for i := from; i < to; i++ {
		body, err := json.Marshal(request{id(i), string(payload(i, due(i))), due(i).UTC().Format(time.RFC3339Nano)})
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := p.client.Do(req)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("%s: %s", resp.Status, answer)
		}
	}
	return nil
}

func (p *plainHTTP) consume(context.Context, func([]byte), func()) (func(), error) {
	return nil, fmt.Errorf("plain calls are for scheduling alone")
}

func (p *plainHTTP) close() {
	p.client.CloseIdleConnections()
	p.end()
}

// openPlainServer is our server, asked by plain calls.
func openPlainServer(ctx context.Context) (system, error) {
	server, err := startDuetime(ctx)
	if err != nil {
		return nil, err
	}
	st, err := remotestore.Open(ctx, "http://"+server.addr, nil)
	if err != nil {
		server.end()
		return nil, err
	}
	o := newOurs(st, 0, server.end)
	return newPlainHTTP("http://"+server.addr+"/v1/queues/"+o.queue+"/tasks", o.reset, o.close), nil
}

// openServer is our server, used through the client library.
func openServer(hands int) func(ctx context.Context) (system, error) {
	return func(ctx context.Context) (system, error) {
		server, err := startDuetime(ctx)
		if err != nil {
			return nil, err
		}
		st, err := remotestore.Open(ctx, "http://"+server.addr, nil)
		if err != nil {
			server.end()
			return nil, err
		}
		return newOurs(st, hands, server.end), nil
	}
}

// openEcho is the least that an HTTP server in Go can do with such a call.
func openEcho(context.Context) (system, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server, err := startServer(func(_ string, port int) (testserver.Command, error) {
		return testserver.Command{Path: self, Args: []string{"echo", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}}, nil
	})
	if err != nil {
		return nil, err
	}
	nothing := func(context.Context) error { return nil }
	return newPlainHTTP("http://"+server.addr+"/", nothing, server.end), nil
}

// serveEcho reads JSON, and answers it.
func serveEcho(addr string) error {
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v request
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(v)
	}))
}
