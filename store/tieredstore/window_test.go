package tieredstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// entry is what a window says of a task.
type entry struct {
	at     time.Time
	leased bool
}

// entries reads the only window of a queue as it lies in Redis.
func (p *pair) entries(t testing.TB, queue string) map[uint64]entry {
	t.Helper()
	return p.entriesOf(t, "*", queue)
}

// entriesOf reads the window of one of several cold stores.
func (p *pair) entriesOf(t testing.TB, identity, queue string) map[uint64]entry {
	t.Helper()
	c, err := testserver.DialRedis(p.redis, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := make(map[uint64]entry)
	for _, name := range []string{"near", "ends"} {
		keys, err := c.Do("KEYS", p.prefix+":{"+identity+"/"+queue+"/1.0}:"+name)
		if err != nil {
			t.Fatal(err)
		}
		if len(keys.([]any)) == 0 {
			continue
		}
		r, err := c.Do("ZRANGE", keys.([]any)[0], "0", "-1", "WITHSCORES")
		if err != nil {
			t.Fatal(err)
		}
		list := r.([]any)
		for i := 0; i < len(list); i += 2 {
			ms, err := strconv.ParseInt(fmt.Sprint(list[i+1]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			all[binary.BigEndian.Uint64([]byte(fmt.Sprint(list[i])))] = entry{time.UnixMilli(ms).UTC(), name == "ends"}
		}
	}
	return all
}

// whole looks after a window and waits until it lacks nothing. Others may be between
// two steps meanwhile, so that only what is lacking all the time is wrong.
func (p *pair) whole(t testing.TB, s *Store, queue string) {
	t.Helper()
	p.looking.Lock() // many who look at once keep each other from going on
	defer p.looking.Unlock()
	var lacking map[uint64]string
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		s.tend(context.Background(), s.queue(queue))
		wrong, loaded := p.lacks(t, s, queue)
		if !loaded {
			continue
		}
		if len(wrong) == 0 {
			return
		}
		if lacking == nil {
			lacking = wrong
		}
		maps.DeleteFunc(lacking, func(seq uint64, _ string) bool { return wrong[seq] == "" })
	}
	if lacking == nil {
		t.Errorf("queue %s: the window is not loaded", queue)
	}
	for _, what := range lacking {
		t.Errorf("queue %s: the window lacks %d, such as %s", queue, len(lacking), what)
		return
	}
}

// lacks says what a window that is loaded lacks of the truth, or has for later.
// A window that changes while it is looked at says nothing.
func (p *pair) lacks(t testing.TB, s *Store, queue string) (wrong map[uint64]string, loaded bool) {
	t.Helper()
	ctx := context.Background()
	look := func() (w store.Window, ok bool) {
		err := s.hot.do(ctx, func(ctx context.Context, h Hot) (err error) {
			w, _, _, err = h.Tend(ctx, queue, "", 0)
			return err
		})
		return w, err == nil && !w.Loaded.Before(s.clock.now())
	}
	w, ok := look()
	if !ok {
		return nil, false
	}
	all := p.entriesOf(t, s.cold.Identity(), queue)
	if again, ok := look(); !ok || again.Generation != w.Generation || again.Version != w.Version {
		return nil, true
	}
	now := s.clock.now()
	wrong = make(map[uint64]string)
	for _, state := range []store.State{store.StateScheduled, store.StateLeased} {
		places, _, err := s.cold.ListPlaces(ctx, queue, state, store.Place{}, w.Loaded, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range places {
			e, ok := all[place.Seq]
			// What somebody took is on its way to its lease, and mended if it never comes there.
			taken := ok && e.leased && state == store.StateScheduled && place.At.After(now.Add(-mendLate))
			if !ok || !taken && e.at.After(place.At) && e.at.After(now) {
				wrong[place.Seq] = fmt.Sprintf("%d: %s at %v, in the window at %v (%v)", place.Seq, state, place.At, e.at, ok)
			}
		}
	}
	return wrong, true
}
