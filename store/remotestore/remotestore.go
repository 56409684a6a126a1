// Package remotestore is a duetime server as a store.Store, over HTTP: what the
// server's store can do, with the server's clock and its durability.
//
//	st, err := remotestore.Open(ctx, "http://127.0.0.1:7333", nil)
//
// A call that can not have reached the server is tried again until its context
// ends or RetryFor is over. One that was lost on its way, or whose answer was, is
// tried again only where that can do no harm: reading, and scheduling tasks that
// are not due for long, which then says Exists rather than Created. All else
// returns the error: what became of it is unknown, as for any store.
//
// Whoever waits for tasks does best with ClaimWait, which leaves the waiting to
// the server. Wake works too, by one stream of events for each queue.
package remotestore

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

const (
	// sliceBytes is how many bytes of payload go into one request, well below the
	// server's limit on a body also as base64.
	sliceBytes = 24 << 20

	maxAnswer     = 128 << 20
	callTimeout   = time.Minute
	defaultRetry  = 10 * time.Second
	firstPause    = 20 * time.Millisecond
	longestPause  = time.Second
	maxIdlePerURL = 256
)

// Options change how a Store works. The zero value is right.
type Options struct {
	// Client sends the requests; nil: one of the store's own.
	Client *http.Client

	// RetryFor is for how long a call is tried again while the server can not be
	// reached, such as while it restarts; 0: 10 s; negative: not at all.
	RetryFor time.Duration
}

// Store is a server as a store.
type Store struct {
	base     string // without a slash at the end
	client   *http.Client
	own      bool // the client is ours
	retryFor time.Duration
	caps     store.Capabilities

	mu     sync.Mutex
	closed bool
	wakers map[string]*waker
	calls  sync.WaitGroup  // and streams; added to under mu
	ctx    context.Context // ends on Close, for claims that wait and streams
	cancel context.CancelFunc
}

var (
	_ store.Store          = (*Store)(nil)
	_ store.WaitingClaimer = (*Store)(nil)
	_ store.Importer       = (*Store)(nil)
)

// Open asks the server at an http or https URL what it can do. opts may be nil.
func Open(ctx context.Context, serverURL string, opts *Options) (*Store, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		if at := strings.LastIndexByte(serverURL, '@'); at >= 0 {
			serverURL = "…" + serverURL[at:] // before it is a password
		}
		return nil, store.NewInputError("store", serverURL, "must be the URL of a server, such as http://127.0.0.1:7333")
	}
	s := &Store{base: strings.TrimSuffix(u.String(), "/"), retryFor: defaultRetry, wakers: map[string]*waker{}}
	if opts != nil {
		s.client = opts.Client
		if opts.RetryFor != 0 {
			s.retryFor = opts.RetryFor
		}
	}
	if s.client == nil {
		s.own = true
		s.client = &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
				TLSHandshakeTimeout: 5 * time.Second,
				TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
				MaxIdleConnsPerHost: maxIdlePerURL,
				IdleConnTimeout:     90 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("the server redirects: is this the URL of a duetime server?")
			},
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var answer wire.Capabilities
	if err := s.get(ctx, "/v1/capabilities", nil, &answer); err != nil {
		s.cancel()
		return nil, fmt.Errorf("open store %s: %w", u.Redacted(), err)
	}
	s.caps = store.Capabilities{
		Name: answer.Name, Durability: answer.Durability, MaxPayload: answer.MaxPayload,
		Cancel: answer.Cancel, Reschedule: answer.Reschedule, Get: answer.Get, List: answer.List, UniqueIDs: answer.UniqueIDs,
		Settings: answer.Settings, Release: answer.Release, Redrive: answer.Redrive, Purge: answer.Purge,
		Unordered: answer.Unordered, Uncounted: answer.Uncounted, ProcessLeases: answer.ProcessLeases,
	}
	return s, nil
}

// Capabilities are those of the server's store.
func (s *Store) Capabilities() store.Capabilities { return s.caps }

// Close waits for calls in flight, except for claims that wait, which end. The
// server and its store go on.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.calls.Wait()
	if s.own {
		s.client.CloseIdleConnections()
	}
	return nil
}

// begin counts a call; done ends it.
func (s *Store) begin() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	s.calls.Add(1)
	return s.calls.Done, nil
}

// kind says when a call may be sent again.
type kind int

const (
	once       kind = iota // only if it was never sent
	repeatable             // the answer is as good the second time
)

func (s *Store) get(ctx context.Context, path string, query url.Values, answer any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return s.call(ctx, http.MethodGet, path, nil, repeatable, nil, answer)
}

func (s *Store) post(ctx context.Context, path string, k kind, body, answer any) error {
	data, err := wire.Encode(body)
	if err != nil {
		return err
	}
	return s.call(ctx, http.MethodPost, path, data, k, nil, answer)
}

// call sends a request, again while that is safe, and reads the answer.
func (s *Store) call(ctx context.Context, method, path string, body []byte, k kind, header http.Header, answer any) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	giveUp := time.Now().Add(s.retryFor)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := s.send(ctx, method, path, body, header, answer)
		var t *transportError
		if err == nil || !errors.As(err, &t) || ctx.Err() != nil || !(t.notSent || k == repeatable) || time.Now().Add(pause).After(giveUp) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// transportError: there is no answer.
type transportError struct {
	err     error
	notSent bool // the server can not have seen the request
}

func (e *transportError) Error() string { return "server: " + e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// send sends a request once. A server that does not answer for callTimeout is as
// good as gone: its machine may have lost power without a word.
func (s *Store) send(parent context.Context, method, path string, body []byte, header http.Header, answer any) error {
	ctx, cancel := context.WithTimeout(parent, callTimeout)
	defer cancel()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, reader)
	if err != nil {
		return err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if parent.Err() != nil {
			return parent.Err()
		}
		var op *net.OpError
		return &transportError{err: err, notSent: errors.As(err, &op) && op.Op == "dial"}
	}
	defer resp.Body.Close()
	data, err := readAll(resp)
	if err != nil {
		if parent.Err() != nil {
			return parent.Err()
		}
		return &transportError{err: err}
	}
	if resp.StatusCode/100 == 2 {
		if err := wire.DecodeAnswer(data, answer); err != nil {
			return fmt.Errorf("server: its answer can not be read (is this a duetime server?): %w", err)
		}
		return nil
	}
	return problem(resp, data)
}

func readAll(resp *http.Response) ([]byte, error) {
	var buffer bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= maxAnswer {
		buffer.Grow(int(n) + bytes.MinRead)
	}
	if _, err := buffer.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return nil, err
	}
	if buffer.Len() > maxAnswer {
		return nil, fmt.Errorf("its answer is over %d bytes long", maxAnswer)
	}
	return buffer.Bytes(), nil
}

// problem makes an error of a problem document.
func problem(resp *http.Response, data []byte) error {
	var doc wire.Error
	if err := wire.DecodeAnswer(data, &doc); err != nil || doc.Problem == "" {
		err := fmt.Errorf("it says %s (is this a duetime server?)", resp.Status)
		if resp.StatusCode >= 500 { // a proxy in between, most likely
			return &transportError{err: err}
		}
		return fmt.Errorf("server: %w", err)
	}
	if doc.Code == wire.CodeUnavailable {
		return &transportError{err: errors.New(doc.Problem)}
	}
	return doc.Store()
}
