package tieredstore

import (
	"context"
	"encoding/binary"
	"fmt"
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

// entries reads a window as it lies in Redis.
func (p *pair) entries(t testing.TB, queue string) map[uint64]entry {
	t.Helper()
	c, err := testserver.DialRedis(p.redis, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := make(map[uint64]entry)
	for _, name := range []string{"near", "ends"} {
		r, err := c.Do("ZRANGE", p.prefix+":{"+queue+"/1.0}:"+name, "0", "-1", "WITHSCORES")
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

// whole looks after a window and waits until it lacks nothing: others may be between
// two steps meanwhile.
func (p *pair) whole(t testing.TB, s *Store, queue string) {
	t.Helper()
	var wrong []string
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		s.tend(context.Background(), s.queue(queue))
		if wrong = p.lacks(t, s, queue); len(wrong) == 0 {
			return
		}
	}
	t.Errorf("queue %s: the window lacks %d, such as %s", queue, len(wrong), wrong[0])
}

// lacks says what a window that is loaded lacks of the truth, or has for later.
// A window that changes while it is looked at says nothing.
func (p *pair) lacks(t testing.TB, s *Store, queue string) (wrong []string) {
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
		return nil
	}
	all := p.entries(t, queue)
	if again, ok := look(); !ok || again.Generation != w.Generation || again.Version != w.Version {
		return nil
	}
	now := s.clock.now()
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
				wrong = append(wrong, fmt.Sprintf("%d: %s at %v, in the window at %v (%v)", place.Seq, state, place.At, e.at, ok))
			}
		}
	}
	return wrong
}
