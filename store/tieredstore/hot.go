package tieredstore

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// hotTimeout is for how long the hot store is waited for. Its answers take less
	// than a millisecond.
	hotTimeout = time.Second
	// askEvery is how often a hot store that is away is asked whether it is back.
	askEvery  = 100 * time.Millisecond
	openEvery = time.Second
	// One that is lost again within steady is asked half as often each time, but once
	// in askMax.
	steady = 10 * time.Second
	askMax = 30 * time.Second
)

// errAway says that the hot store is away, as far as is known here.
var errAway = errors.New("the hot store is away")

// hot is the hot store, which may be away.
type hot struct {
	s    *Store
	open func(context.Context) (Hot, error)

	mu    sync.Mutex
	store Hot // nil: was never reached
	away  bool
	since time.Time       // when it was lost
	until time.Time       // when it was back last
	pause time.Duration   // between two questions whether it is back
	dirty map[string]bool // queues whose windows lack something that was to be noted
	waits []chan struct{} // of who wants to know that there is a store
}

func (h *hot) connect(ctx context.Context) error {
	opened, err := h.open(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store = &named{opened, h.s.cold.Identity()}
	for _, c := range h.waits {
		close(c)
	}
	h.waits = nil
	return nil
}

// there reports whether it is worth asking.
func (h *hot) there() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.store != nil && !h.away
}

// do asks the hot store for something. Where that fails it is taken to be away.
func (h *hot) do(ctx context.Context, f func(context.Context, Hot) error) error {
	h.mu.Lock()
	st, away := h.store, h.away
	h.mu.Unlock()
	if st == nil || away {
		return errAway
	}
	limited, cancel := context.WithTimeout(ctx, hotTimeout)
	defer cancel()
	err := f(limited, st)
	if err != nil && ctx.Err() == nil {
		h.lose(err)
	}
	return err
}

// note is do for what changes a queue's window: if it was not done, the window is
// not to be used again as it is.
func (h *hot) note(ctx context.Context, queue string, f func(context.Context, Hot) error) {
	if h.do(ctx, f) != nil {
		h.spoil(queue)
	}
}

// spoil lets a window be forgotten as soon as that is possible.
func (h *hot) spoil(queue string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dirty[queue] = true
}

// lose takes the store to be away.
func (h *hot) lose(err error) {
	h.mu.Lock()
	was := h.away
	h.away = true
	if !was {
		h.since = time.Now()
		if h.pause = min(2*h.pause, askMax); h.pause == 0 || time.Since(h.until) > steady {
			h.pause = askEvery
		}
	}
	h.mu.Unlock()
	if !was && h.s.ctx.Err() == nil {
		h.s.counts.lost.Add(1)
		h.s.opts.Logger.Warn("duetime: the hot store is away: claims go to the cold store until it is back", "error", err)
	}
}

// watch asks for the store when it is away, and forgets spoilt windows.
func (h *hot) watch() {
	var opened, asked time.Time
	for {
		select {
		case <-h.s.ctx.Done():
			return
		case <-time.After(askEvery):
		}
		h.mu.Lock()
		st, away, dirty, pause := h.store, h.away, len(h.dirty), h.pause
		h.mu.Unlock()
		switch {
		case st == nil:
			if time.Since(opened) < openEvery {
				continue
			}
			opened = time.Now()
			ctx, cancel := context.WithTimeout(h.s.ctx, 10*time.Second)
			err := h.connect(ctx)
			cancel()
			if err == nil {
				h.back()
			}
		case away && time.Since(asked) < pause:
		case away || dirty > 0:
			asked = time.Now()
			h.back()
		}
	}
}

// back makes use of the store again, if it answers.
func (h *hot) back() {
	for {
		h.mu.Lock()
		st := h.store
		var queues []string
		for q := range h.dirty {
			queues = append(queues, q)
		}
		// What is spoilt from now on is for another time.
		h.dirty = make(map[string]bool)
		h.mu.Unlock()
		ctx, cancel := context.WithTimeout(h.s.ctx, hotTimeout)
		err := st.Ping(ctx)
		done := 0
		for ; err == nil && done < len(queues); done++ {
			if err = st.Reset(ctx, queues[done]); err != nil {
				break
			}
			h.s.counts.forgotten.Add(1)
		}
		cancel()
		h.mu.Lock()
		if err != nil {
			for _, q := range queues[done:] {
				h.dirty[q] = true
			}
			h.mu.Unlock()
			return
		}
		if len(h.dirty) > 0 {
			h.mu.Unlock()
			continue
		}
		was := h.away
		h.away = false
		if was {
			h.until = time.Now()
		}
		h.mu.Unlock()
		if was {
			h.s.opts.Logger.Info("duetime: the hot store is back", "after", time.Since(h.since).Round(time.Millisecond).String())
			h.s.kickAll()
		}
		return
	}
}

// opened is the store, or, as long as there is none, a channel that is closed when
// there is.
func (h *hot) opened() (Hot, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store != nil {
		return h.store, nil
	}
	c := make(chan struct{})
	h.waits = append(h.waits, c)
	return nil, c
}

func (h *hot) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store != nil {
		_ = h.store.Close()
	}
}
