package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

func listQueues(c *call) error {
	names, err := c.s.store.Queues(c.ctx())
	if err != nil {
		return err
	}
	if names == nil {
		names = []string{}
	}
	return c.answer(http.StatusOK, wire.QueueList{Queues: names})
}

func getQueue(c *call) error {
	stats, err := c.s.store.Stats(c.ctx(), c.params.queue)
	if err != nil {
		return err
	}
	settings, err := c.s.store.Settings(c.ctx(), c.params.queue)
	if err != nil {
		return err
	}
	c.w.Header().Set("ETag", etag(settings.Version))
	return c.answer(http.StatusOK, wire.Queue{
		Queue:     c.params.queue,
		Counts:    wire.Counts{Scheduled: stats.Scheduled, Ready: stats.Ready, Leased: stats.Leased, Dead: stats.Dead},
		OldestDue: wire.Milli(stats.OldestDue), NextDue: wire.Milli(stats.NextDue),
		Settings: wire.FromSettings(&settings),
	})
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

func patchQueue(c *call) error {
	var patch wire.SettingsPatch
	if err := c.decode(&patch); err != nil {
		var input *store.InputError
		if errors.As(err, &input) && input.Field != wire.Body {
			input.Field = "settings." + input.Field
		}
		return err
	}
	return c.changeSettings(patch)
}

func pauseQueue(c *call) error {
	return c.changeSettings(wire.SettingsPatch{Paused: wire.Set(true)})
}

func resumeQueue(c *call) error {
	return c.changeSettings(wire.SettingsPatch{Paused: wire.Set(false)})
}

// changeSettings reads, changes and puts back; without If-Match it does so
// again where someone else was faster.
func (c *call) changeSettings(patch wire.SettingsPatch) error {
	if c.route.emptyBody { // pause and resume: a body may say {} and no more
		if err := c.decode(&struct{}{}); err != nil {
			return err
		}
	}
	match := c.r.Header.Get("If-Match")
	var version int64 = -1
	if match != "" && match != "*" {
		var err error
		version, err = strconv.ParseInt(strings.Trim(strings.TrimPrefix(match, "W/"), `"`), 10, 64)
		if err != nil || version < 0 {
			return store.NewInputError("If-Match", match, `must be the ETag of the queue, such as "3", or *`)
		}
	}
	for tries := 0; ; tries++ {
		settings, err := c.s.store.Settings(c.ctx(), c.params.queue)
		if err != nil {
			return err
		}
		if version >= 0 {
			settings.Version = version
		}
		if err := patch.Apply(&settings); err != nil {
			return err
		}
		settings, err = c.s.store.PutSettings(c.ctx(), c.params.queue, settings)
		if errors.Is(err, store.ErrVersion) && version < 0 && tries < 20 {
			continue
		}
		if err != nil {
			return err
		}
		c.w.Header().Set("ETag", etag(settings.Version))
		return c.answer(http.StatusOK, wire.FromSettings(&settings))
	}
}

func redrive(c *call) error {
	var body wire.RedriveBody
	if err := c.decode(&body); err != nil {
		return err
	}
	if err := checkBatch("ids", len(body.IDs)); err != nil {
		return err
	}
	if body.All == (len(body.IDs) > 0) {
		return &store.InputError{Field: "ids", Problem: `give either {"ids":[…]} or {"all":true}`}
	}
	n, err := c.s.store.Redrive(c.r.Context(), store.RedriveRequest{Queue: c.params.queue, IDs: body.IDs, All: body.All})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, wire.Redriven{Redriven: n})
}

func purge(c *call) error {
	var body wire.PurgeBody
	if err := c.decode(&body); err != nil {
		return err
	}
	given := 0
	for _, g := range []bool{body.IDs != nil, body.All, body.State != nil} {
		if g {
			given++
		}
	}
	if given != 1 {
		return &store.InputError{Field: "state", Problem: `give one of {"state":"dead"}, {"ids":[…]} and {"all":true}`}
	}
	if body.IDs != nil {
		return c.purgeIDs(body.IDs)
	}
	states := store.States()
	if body.State != nil {
		state, err := store.ParseState(*body.State)
		if err != nil {
			return err
		}
		states = []store.State{state}
	}
	total := 0
	for _, state := range states {
		n, err := c.s.store.Purge(c.r.Context(), c.params.queue, state)
		if err != nil {
			return err
		}
		total += n
	}
	return c.answer(http.StatusOK, wire.Purged{Purged: total})
}

func (c *call) purgeIDs(ids []string) error {
	if err := checkBatch("ids", len(ids)); err != nil {
		return err
	}
	requests := make([]store.CancelRequest, len(ids))
	for i, id := range ids {
		if err := store.CheckID(id); err != nil {
			return err
		}
		requests[i] = store.CancelRequest{Queue: c.params.queue, ID: id, Force: true}
	}
	results, err := c.s.store.Cancel(c.ctx(), requests)
	if err != nil {
		return err
	}
	purged := 0
	for i := range results {
		switch results[i].Outcome {
		case store.Cancelled:
			purged++
		case store.Refused:
			return results[i].Err
		}
	}
	return c.answer(http.StatusOK, wire.Purged{Purged: purged})
}

func capabilities(c *call) error {
	k := c.s.store.Capabilities()
	return c.answer(http.StatusOK, wire.Capabilities{
		Name: k.Name, Durability: k.Durability, MaxPayload: k.MaxPayload,
		Cancel: k.Cancel, Reschedule: k.Reschedule, Get: k.Get, List: k.List, UniqueIDs: k.UniqueIDs,
		Settings: k.Settings, Release: k.Release, Redrive: k.Redrive, Purge: k.Purge,
		Unordered: k.Unordered, Uncounted: k.Uncounted, ProcessLeases: k.ProcessLeases,
	})
}
