package redisstore

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

const (
	// windowKept is for how long a window is kept that nobody comes by.
	windowKept = 24 * time.Hour
	// windowSlice is how many tasks one script puts in.
	windowSlice = 1000
)

// Windows keeps, for a store that holds tasks elsewhere, the order of those that
// come next: of each its number and its time, in two sorted sets for each queue. It
// shares the connection, the prefix and the wake-ups of a Store, and nothing else:
// its queues are not the Store's. It is safe for use by any number of goroutines.
type Windows struct {
	s                           *Store
	take, put, begin, end, tend *rueidis.Lua
}

// Windows returns the windows that lie beside a store's own tasks.
func (s *Store) Windows() *Windows {
	load := func(name string) *rueidis.Lua { return rueidis.NewLuaScript(readScript("window_" + name)) }
	return &Windows{s, load("take"), load("put"), load("begin"), load("end"), load("tend")}
}

// exec runs a script on a queue's window. The reply has the window itself first.
func (w *Windows) exec(ctx context.Context, script *rueidis.Lua, queue string, args ...string) (store.Window, reply, error) {
	var r reply
	if err := w.s.enter(ctx); err != nil {
		return store.Window{}, r, err
	}
	defer w.s.ops.RUnlock()
	var err error
	r.values, err = script.Exec(ctx, w.s.client, w.keys(queue), args).ToArray()
	if err != nil {
		if full := fullError(err); full != nil {
			return store.Window{}, r, full
		}
		return store.Window{}, r, w.s.broken(ctx, err)
	}
	window := store.Window{Generation: r.number(0), Version: r.number(1)}
	if window.Generation != 0 {
		window.Edge, window.Loaded = fromMilli(r.number(2)), fromMilli(r.number(3))
	}
	return window, r, nil
}

// keys are a window's. The wake key is that which Wake listens to for a queue that
// the store itself does not have.
func (w *Windows) keys(queue string) []string {
	tag := w.s.opts.Prefix + ":{" + queue + "/1.0}:"
	return []string{tag + "window", tag + "near", tag + "wake", tag + "tender", tag + "ends"}
}

// Ping does all that is ever done with a window, in one of no queue, which it forgets
// again: a server may answer and yet be full, or refuse the user something.
func (w *Windows) Ping(ctx context.Context) error {
	const queue = "/ping"
	now := time.Now()
	soon, generation := now.Add(time.Minute), now.UnixMilli()
	task := []store.Place{{Seq: 1, At: now, State: store.StateScheduled}}
	for _, step := range []func() error{
		func() error { _, err := w.Begin(ctx, queue, generation, soon, true); return err },
		func() error { _, _, err := w.Load(ctx, queue, generation, task, now, true); return err },
		func() error { _, err := w.End(ctx, queue, generation, soon); return err },
		func() error { _, _, _, err := w.Tend(ctx, queue, "ping", time.Second); return err },
		func() error { _, err := w.Take(ctx, queue, now, now, 1, soon); return err },
		func() error { _, err := w.Apply(ctx, queue, task, now); return err },
		func() error { return w.Reset(ctx, queue) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Take takes up to limit tasks that are due until an instant, and notes them as leased
// until again, or as much later as they are due after now; or, where there are some, up to a thousand whose leases have ended by
// now. It takes none where the window is not loaded as far, and with a limit of 0.
func (w *Windows) Take(ctx context.Context, queue string, now, until time.Time, limit int, again time.Time) (store.WindowTaken, error) {
	window, r, err := w.exec(ctx, w.take, queue, milliText(now), strconv.Itoa(min(limit, windowSlice)), milliText(again), milliText(until))
	taken := store.WindowTaken{Window: window}
	if err != nil {
		return taken, err
	}
	taken.Whole = r.number(4) == 1
	if next := r.number(5); next >= 0 {
		taken.Next = fromMilli(next)
	}
	taken.Ended = r.number(6) == 1
	const head = 7
	taken.Seqs = make([]uint64, 0, len(r.values)-head)
	for i := head; i < len(r.values); i++ {
		if m := r.text(i); len(m) == 8 {
			taken.Seqs = append(taken.Seqs, binary.BigEndian.Uint64([]byte(m)))
		}
	}
	return taken, nil
}

// Apply makes a window say of tasks what their places say: those that wait or are
// leased until the edge are in, the others are not.
func (w *Windows) Apply(ctx context.Context, queue string, places []store.Place, now time.Time) (store.Window, error) {
	window, _, err := w.puts(ctx, queue, "apply", 0, places, now)
	return window, err
}

// Load puts in what is not in, and says of how many that was true. Nothing is done
// in a window of another generation. With mend it also moves those that ought to be
// claimable now and are in for later.
func (w *Windows) Load(ctx context.Context, queue string, generation int64, places []store.Place, now time.Time, mend bool) (store.Window, int, error) {
	how := "load"
	if mend {
		how = "mend"
	}
	return w.puts(ctx, queue, how, generation, places, now)
}

func (w *Windows) puts(ctx context.Context, queue, how string, generation int64, places []store.Place, now time.Time) (window store.Window, changed int, err error) {
	for {
		n := min(len(places), windowSlice)
		args := make([]string, 0, 5+3*n)
		args = append(args, w.s.how, *w.s.origin.Load(), milliText(now), how, strconv.FormatInt(generation, 10))
		for i := range places[:n] {
			p := &places[i]
			state, at := "", ""
			switch p.State {
			case store.StateScheduled, store.StateReady:
				state, at = "s", milliText(p.At)
			case store.StateLeased:
				state, at = "l", milliText(p.At)
			}
			args = append(args, state, at, string(binary.BigEndian.AppendUint64(nil, p.Seq)))
		}
		var r reply
		if window, r, err = w.exec(ctx, w.put, queue, args...); err != nil {
			return window, changed, err
		}
		changed += int(r.number(4))
		if r.number(5) == 1 {
			w.s.tick(queue) // those here do not hear what they said themselves
		}
		if places = places[n:]; len(places) == 0 {
			return window, changed, nil
		}
	}
}

// Begin moves the edge of a window on; with fresh it begins a new, empty one, of
// that generation, where there is none of a later one.
func (w *Windows) Begin(ctx context.Context, queue string, generation int64, edge time.Time, fresh bool) (store.Window, error) {
	flag := "0"
	if fresh {
		flag = "1"
	}
	window, _, err := w.exec(ctx, w.begin, queue, strconv.FormatInt(generation, 10), milliText(edge), strconv.FormatInt(windowKept.Milliseconds(), 10), flag)
	return window, err
}

// End notes up to where a window is loaded.
func (w *Windows) End(ctx context.Context, queue string, generation int64, loaded time.Time) (store.Window, error) {
	window, _, err := w.exec(ctx, w.end, queue, strconv.FormatInt(generation, 10), milliText(loaded), strconv.FormatInt(windowKept.Milliseconds(), 10))
	return window, err
}

// Tend says what a window is, how many tasks are in it, and whether it is for node
// to look after it, for a while. With no node it only looks.
func (w *Windows) Tend(ctx context.Context, queue, node string, lease time.Duration) (window store.Window, mine bool, count int64, err error) {
	window, r, err := w.exec(ctx, w.tend, queue, node, strconv.FormatInt(lease.Milliseconds(), 10))
	if err != nil {
		return window, false, 0, err
	}
	return window, r.number(4) == 1, r.number(5), nil
}

// Reset forgets a window, so that it is loaded again.
func (w *Windows) Reset(ctx context.Context, queue string) error {
	if err := w.s.enter(ctx); err != nil {
		return err
	}
	defer w.s.ops.RUnlock()
	keys := w.keys(queue)
	if err := w.s.client.Do(ctx, w.s.client.B().Unlink().Key(keys[0], keys[1], keys[4]).Build()).Error(); err != nil {
		return w.s.broken(ctx, err)
	}
	w.s.tick(queue)
	return nil
}

// Wake ticks when something may be claimable earlier than a window said.
func (w *Windows) Wake(queue string) (<-chan struct{}, func()) { return w.s.Wake(queue) }

// Close closes the store that the windows lie beside.
func (w *Windows) Close() error { return w.s.Close() }

func milliText(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
