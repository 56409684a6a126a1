package server

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// The store is asked this often whether it is there.
	probeEvery = time.Second
	// unreadyAfter is how long it may fail to be before readyz goes red.
	unreadyAfter = 5 * time.Second

	// probeQueue does not exist; a claim of it goes the whole way and gets nothing.
	probeQueue = "duetime.probe"
)

// readiness is the body of /readyz.
type readiness struct {
	Ready    bool      `json:"ready"`
	Store    component `json:"store" doc:"Whether the store answers."`
	Dispatch component `json:"dispatch" doc:"Whether waiting claims are served."`
}

type component struct {
	Ready       bool   `json:"ready"`
	LastSuccess string `json:"last_success,omitzero" doc:"When it last worked."`
	Problem     string `json:"problem,omitzero" doc:"Why it is not ready."`
	Degraded    string `json:"degraded,omitzero" doc:"What it does without meanwhile, though it is ready."`
}

// probe remembers when the store last answered.
type probe struct {
	mu      sync.Mutex
	last    time.Time
	problem string
	since   time.Time // when it stopped answering; zero: it does
}

// run asks the store until ctx ends.
func (p *probe) run(ctx context.Context, s *Server) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		p.ask(ctx, s)
		s.sweepLeases()
		s.repeats.tell()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *probe) ask(ctx context.Context, s *Server) {
	ctx, cancel := context.WithTimeout(ctx, unreadyAfter)
	defer cancel()
	_, err := s.store.Claim(ctx, []store.ClaimRequest{{Queue: probeQueue, Max: 1}})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		if !p.since.IsZero() {
			s.log.Info("the store answers again", "after", time.Since(p.since).Round(time.Millisecond).String())
		}
		p.last, p.problem, p.since = time.Now(), "", time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	p.problem = asFailure(err).err.Problem
	s.repeats.say(slog.LevelWarn, "the store does not answer", "", "error", err)
}

func (p *probe) state() component {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := component{Ready: !p.last.IsZero() && time.Since(p.last) < unreadyAfter}
	if !p.last.IsZero() {
		c.LastSuccess = p.last.UTC().Format(time.RFC3339)
	}
	if !c.Ready {
		if c.Problem = p.problem; c.Problem == "" {
			c.Problem = "the store has not answered for " + unreadyAfter.String()
		}
	}
	return c
}

func healthz(c *call) error {
	return c.answer(http.StatusOK, struct {
		Status string `json:"status"`
	}{"alive"})
}

func readyz(c *call) error {
	r := readiness{Store: c.s.probe.state(), Dispatch: c.s.dispatchState()}
	r.Ready = r.Store.Ready && r.Dispatch.Ready
	if d, ok := store.As[store.Degrader](c.s.store); ok {
		r.Store.Degraded = d.Degraded()
	}
	if c.s.stopping.Err() != nil {
		r.Ready, r.Dispatch = false, component{Problem: "the server is stopping"}
	}
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	return c.answer(status, r)
}
