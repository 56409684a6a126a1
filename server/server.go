// Package server is duetime over HTTP: every operation of a store as a call with
// JSON, for programs in any language.
//
//	srv, err := server.New(st, nil)
//	...
//	err = srv.Serve(ctx, listener) // until ctx ends
//	err = st.Close()
//
// The calls are described in docs/http-api.md, and by the server itself at
// /openapi.json and /docs.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/duetime/duetime/internal/batch"
	"github.com/duetime/duetime/internal/dispatch"
	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

const (
	bigBody = 1 << 20 // bodies above it are read a few at a time, to bound the memory
	atOnce  = 4       // how many

	defaultBatchBody   = 64 << 20
	defaultStopTimeout = 10 * time.Second
)

// Options change how a server works. The zero value, or nil, is right for most.
type Options struct {
	Logger  *slog.Logger // nil: slog.Default(). Payloads are never logged
	Version string       // of the program, for /openapi.json

	// MaxBatchBody is the largest body of a call that takes many items, in bytes;
	// 0: 64 MiB. That of a call that takes one is twice the store's payload limit
	// and 64 KiB.
	MaxBatchBody int64

	// StopTimeout is for how long Serve lets requests in flight finish once it
	// was told to stop; 0: 10 s.
	StopTimeout time.Duration

	// Hosts are names, without port, under which browsers and other clients may
	// call the server, beside localhost, names that end in .localhost, and IP
	// addresses. Other names are refused where the listener that Serve is given has
	// a loopback address, or Hosts is not empty: a page of the internet may have its
	// name point to 127.0.0.1, and would else be taken for the server's own.
	Hosts []string

	// Now is the clock by which lease ends and ages are counted for metrics; nil:
	// time.Now. Due times and leases are always by the store's clock.
	Now func() time.Time

	storeTimeout time.Duration // for tests
}

// Server serves a store over HTTP. It is an http.Handler, safe for concurrent
// use. Close or Serve ends what it runs in the background; the store stays open.
type Server struct {
	store    store.Store // batching
	dispatch *dispatch.Dispatcher
	log      *slog.Logger
	opts     Options
	now      func() time.Time

	mux       mux
	bigBodies chan struct{} // room for as many
	metrics   *metrics
	leases    *leaseTable
	waits     waits
	probe     probe
	repeats   repeats
	openapi   []byte
	docs      []byte
	hosts     map[string]bool // Options.Hosts

	stopping   context.Context // ends when waiting claims must be answered
	stop       context.CancelFunc
	background sync.WaitGroup
	closeOnce  sync.Once
}

// New makes a server of an open store. opts may be nil. It asks the store once a
// second whether it is there, until Close.
func New(st store.Store, opts *Options) (*Server, error) {
	s := &Server{
		store: batch.Wrap(st), now: time.Now, bigBodies: make(chan struct{}, atOnce),
		metrics: newMetrics(), leases: newLeaseTable(),
	}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.MaxBatchBody < 0 || s.opts.StopTimeout < 0 {
		return nil, fmt.Errorf("server: MaxBatchBody (%d) and StopTimeout (%v) must not be negative", s.opts.MaxBatchBody, s.opts.StopTimeout)
	}
	if s.opts.MaxBatchBody == 0 {
		s.opts.MaxBatchBody = defaultBatchBody
	}
	if s.opts.StopTimeout == 0 {
		s.opts.StopTimeout = defaultStopTimeout
	}
	if s.opts.Now != nil {
		s.now = s.opts.Now
	}
	if s.log = s.opts.Logger; s.log == nil {
		s.log = slog.Default()
	}
	s.repeats = repeats{log: s.log, now: time.Now}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.dispatch = dispatch.New(s.store, &dispatch.Options{Logger: s.log})
	s.metrics.registry.MustRegister(&depth{s: s})
	if m, ok := store.As[store.Measurer](s.store); ok {
		s.metrics.registry.MustRegister(measures{m})
	}

	routes := s.routes()
	for _, rt := range routes {
		s.mux.add(rt)
	}
	var err error
	if s.openapi, err = describe(routes, s.opts.Version); err != nil {
		return nil, err
	}
	if s.docs, err = docsPage(routes); err != nil {
		return nil, err
	}
	s.allowHosts()
	s.background.Go(func() { s.probe.run(s.stopping, s) })
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handle(w, r, len(s.opts.Hosts) > 0)
}

// handle answers a request. checkHost is whether the name that it calls the
// server by matters.
func (s *Server) handle(w http.ResponseWriter, r *http.Request, checkHost bool) {
	sw := &statusWriter{ResponseWriter: w}
	name := "none"
	// First of all, so that it covers the finding of the route as well: net/http
	// would close the connection without an answer.
	defer func() {
		x := recover()
		cut := x != nil && sw.status != 0
		if x != nil {
			s.log.Error("a call panicked", "call", name, "panic", x, "stack", string(debug.Stack()))
			if !cut {
				s.fail(sw, r, name, &failure{
					status: http.StatusInternalServerError,
					err:    &wire.Error{Code: wire.CodeInternal, Problem: "the server has a bug; its log says more"},
				})
			}
		}
		if sw.status != 0 {
			s.metrics.requests.WithLabelValues(name, strconv.Itoa(sw.status)).Inc()
		}
		if cut {
			panic(http.ErrAbortHandler) // half an answer must not pass for a whole one
		}
	}()
	rt, p, err := s.mux.route(r)
	if rt != nil {
		name = rt.name
	}
	if refused := s.checkOrigin(r, checkHost); refused != nil {
		err = refused
	}
	if err == nil {
		err = s.serve(sw, r, rt, p)
	}
	if err != nil {
		s.fail(sw, r, name, err)
	}
}

// statusWriter remembers the status for the metrics.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Serve answers requests on a listener, HTTP/1.1 and HTTP/2 without TLS, until
// ctx ends. Then it answers waiting claims at once with no tasks, takes no new
// requests, lets those in flight finish, and returns nil; after StopTimeout it
// closes what is left and returns an error. It closes the listener and the
// Server. Call it once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.Close()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	checkHost := len(s.opts.Hosts) > 0 || isLoopback(l.Addr())
	var unused unusedConns
	hs := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(w, r, checkHost) }),
		ConnState:         unused.note,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      MaxWait + writeTimeout,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("server: %w", err)
	case <-ctx.Done():
	}
	s.stop()
	deadline, cancel := context.WithTimeout(context.Background(), s.opts.StopTimeout)
	defer cancel()
	unused.close()
	if err := hs.Shutdown(deadline); err != nil {
		return errors.Join(fmt.Errorf("server: requests were still running %v after the stop", s.opts.StopTimeout), hs.Close())
	}
	return nil
}

// unusedConns are the connections on which nothing was sent yet: clients open
// some in advance. http.Server.Shutdown waits five seconds for them.
type unusedConns struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

func (u *unusedConns) note(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		c.Close()
	default:
		if u.conns == nil {
			u.conns = map[net.Conn]struct{}{}
		}
		u.conns[c] = struct{}{}
	}
}

func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		c.Close()
	}
}

// Close answers waiting claims with no tasks and ends what runs in the
// background. It does not close the store. Closing twice is allowed.
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		s.stop()
		s.dispatch.Close()
		s.background.Wait()
	})
}

// dispatchState says whether waiting claims are served.
func (s *Server) dispatchState() component {
	h := s.dispatch.Health()
	c := component{Ready: true, LastSuccess: h.LastSuccess.UTC().Format(time.RFC3339)}
	if time.Since(h.LastSuccess) >= unreadyAfter {
		c.Ready, c.Problem = false, "no claim has succeeded for "+unreadyAfter.String()
		if h.LastError != nil {
			c.Problem += ": " + asFailure(h.LastError).err.Problem
		}
	}
	return c
}
