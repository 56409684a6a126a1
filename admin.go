package duetime

import (
	"context"
	"errors"
	"iter"

	"github.com/duetime/duetime/store"
)

// Settings are a queue's settings, kept by the store and obeyed by all who use
// it within a second of a change.
type Settings = store.Settings

// Backoff is the part of a queue's settings that says how long a task that failed
// waits for its next attempt.
type Backoff = store.Backoff

// Stats counts a queue's tasks.
type Stats = store.Stats

// ListOptions change what a list shows. The zero value is right.
type ListOptions struct {
	Limit    int    // tasks in a page, 1 to 1,000; 0: 100
	Cursor   string // Page.Cursor of the page before; empty for the first
	Payloads bool   // with payloads and headers
}

// Page is one page of a list. Cursor is empty on the last one.
type Page struct {
	Tasks  []*Task
	Cursor string
}

// List returns a page of a queue's tasks in one state, those that are due first
// first. opts may be nil. [Client.Tasks] goes through all pages.
func (c *Client) List(ctx context.Context, queue string, state State, opts *ListOptions) (Page, error) {
	if opts == nil {
		opts = new(ListOptions)
	}
	page, err := c.store.List(ctx, store.ListRequest{
		Queue: queue, State: state, Cursor: opts.Cursor, Limit: opts.Limit, Payloads: opts.Payloads,
	})
	if err != nil {
		return Page{}, opError("list tasks", queue, "", err)
	}
	p := Page{Tasks: make([]*Task, len(page.Tasks)), Cursor: page.Cursor}
	for i := range page.Tasks {
		p.Tasks[i] = taskOf(&page.Tasks[i])
	}
	return p, nil
}

// Tasks goes through a queue's tasks in one state, those that are due first
// first, a page at a time. A task that changes meanwhile may be missed or come
// twice; one that does not comes once. After an error there is nothing more.
// opts may be nil.
func (c *Client) Tasks(ctx context.Context, queue string, state State, opts *ListOptions) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		var o ListOptions
		if opts != nil {
			o = *opts
		}
		for {
			page, err := c.List(ctx, queue, state, &o)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, t := range page.Tasks {
				if !yield(t, nil) {
					return
				}
			}
			if page.Cursor == "" {
				return
			}
			o.Cursor = page.Cursor
		}
	}
}

// Queues returns the names of all queues, in byte order.
func (c *Client) Queues(ctx context.Context) ([]string, error) {
	names, err := c.store.Queues(ctx)
	return names, opError("list queues", "", "", err)
}

// Stats counts a queue's tasks; its cost does not depend on how many there are.
// A queue that does not exist has none.
func (c *Client) Stats(ctx context.Context, queue string) (Stats, error) {
	stats, err := c.store.Stats(ctx, queue)
	return stats, opError("count tasks", queue, "", err)
}

// Settings returns a queue's settings.
func (c *Client) Settings(ctx context.Context, queue string) (Settings, error) {
	settings, err := c.store.Settings(ctx, queue)
	return settings, opError("read settings", queue, "", err)
}

// UpdateSettings changes a queue's settings: change gets them as they are and
// changes what it wants changed. Where someone else changed them at the same
// time, it is called again with the newer ones, so that no change is lost. The
// error is an *InputError where the new settings are wrong; then nothing has
// changed. Returns the settings as they are then.
func (c *Client) UpdateSettings(ctx context.Context, queue string, change func(*Settings)) (Settings, error) {
	const tries = 20 // each failed one means that somebody else's succeeded
	for try := 1; ; try++ {
		settings, err := c.store.Settings(ctx, queue)
		if err != nil {
			return Settings{}, opError("change settings", queue, "", err)
		}
		version := settings.Version
		change(&settings)
		settings.Version = version
		settings, err = c.store.PutSettings(ctx, queue, settings)
		if err == nil {
			return settings, nil
		}
		if !errors.Is(err, ErrVersion) || try == tries {
			return Settings{}, opError("change settings", queue, "", err)
		}
	}
}

// Pause keeps a queue's tasks from being handed out, in all processes, until
// Resume. Those that are running go on, and new ones can be scheduled.
func (c *Client) Pause(ctx context.Context, queue string) error {
	_, err := c.UpdateSettings(ctx, queue, func(s *Settings) { s.Paused = true })
	return err
}

// Resume ends a pause. What became due meanwhile is handed out at once.
func (c *Client) Resume(ctx context.Context, queue string) error {
	_, err := c.UpdateSettings(ctx, queue, func(s *Settings) { s.Paused = false })
	return err
}

// Redrive brings the dead tasks with these ids back, due now and with all their
// attempts, and returns how many of them were dead. Others are passed over. After
// an error some may have been brought back.
func (c *Client) Redrive(ctx context.Context, queue string, ids []string) (int, error) {
	total := 0
	for len(ids) > 0 {
		n := min(len(ids), store.MaxBatch)
		moved, err := c.store.Redrive(ctx, store.RedriveRequest{Queue: queue, IDs: ids[:n]})
		total += moved
		if err != nil {
			return total, opError("redrive", queue, "", err)
		}
		ids = ids[n:]
	}
	return total, nil
}

// RedriveAll brings all dead tasks of a queue back, as Redrive does.
func (c *Client) RedriveAll(ctx context.Context, queue string) (int, error) {
	n, err := c.store.Redrive(ctx, store.RedriveRequest{Queue: queue, All: true})
	return n, opError("redrive", queue, "", err)
}

// Purge removes all of a queue's tasks that are in one state and returns how many
// they were. There is no way back. After an error some may have been removed.
func (c *Client) Purge(ctx context.Context, queue string, state State) (int, error) {
	n, err := c.store.Purge(ctx, queue, state)
	return n, opError("purge", queue, "", err)
}
