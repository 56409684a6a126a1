package server

import (
	"io"
	"net/http"
	"time"
)

const (
	wakeKeepAlive    = 20 * time.Second
	wakeWriteTimeout = 10 * time.Second
)

// wake streams the store's ticks for a queue as server-sent events, for programs
// that plan their own claims. The first comes at once: what happened before the
// stream was there is not known.
func wake(c *call) error {
	ticks, stop := c.s.store.Wake(c.params.queue)
	defer stop()
	rc := http.NewResponseController(c.w)
	_ = rc.SetReadDeadline(time.Time{}) // it would end the watch for the client's going
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("Cache-Control", "no-store")
	send := func(text string) error {
		if err := rc.SetWriteDeadline(time.Now().Add(wakeWriteTimeout)); err != nil {
			return &goneError{err}
		}
		if _, err := io.WriteString(c.w, text); err != nil {
			return &goneError{err}
		}
		if err := rc.Flush(); err != nil {
			return &goneError{err}
		}
		return nil
	}
	const event = "event: wake\ndata: {}\n\n"
	if err := send(event); err != nil {
		return err
	}
	keepAlive := time.NewTicker(wakeKeepAlive)
	defer keepAlive.Stop()
	for {
		text := event
		select {
		case <-ticks:
		case <-keepAlive.C:
			text = ": still there\n\n"
		case <-c.r.Context().Done():
			return &goneError{c.r.Context().Err()}
		case <-c.s.stopping.Done():
			return nil
		}
		if err := send(text); err != nil {
			return err
		}
	}
}
