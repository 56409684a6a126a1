package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

var closeCases = []testCase{
	{"every call after it says so", 0, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		st := e.in.Store
		for range 2 {
			e.must(st.Close())
		}
		calls := map[string]func() error{
			"schedule": func() error { _, err := st.Schedule(e.ctx, []store.NewTask{{Queue: q, ID: "2"}}); return err },
			"claim":    func() error { _, err := st.Claim(e.ctx, []store.ClaimRequest{{Queue: q, Max: 1}}); return err },
			"settle": func() error {
				_, err := st.Settle(e.ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}})
				return err
			},
			"queues": func() error { _, err := st.Queues(e.ctx); return err },
			"stats":  func() error { _, err := st.Stats(e.ctx, q); return err },
		}
		if e.caps.Cancel {
			calls["cancel"] = func() error { _, err := st.Cancel(e.ctx, []store.CancelRequest{{Queue: q, ID: "1"}}); return err }
		}
		if e.caps.Reschedule {
			calls["reschedule"] = func() error {
				_, err := st.Reschedule(e.ctx, []store.RescheduleRequest{{Queue: q, ID: "1"}})
				return err
			}
		}
		if e.caps.Get {
			calls["get"] = func() error { _, err := st.Get(e.ctx, []store.Key{{Queue: q, ID: "1"}}); return err }
		}
		if e.caps.List {
			calls["list"] = func() error {
				_, err := st.List(e.ctx, store.ListRequest{Queue: q, State: store.StateReady})
				return err
			}
		}
		if e.caps.Settings {
			calls["settings"] = func() error { _, err := st.Settings(e.ctx, q); return err }
			calls["put settings"] = func() error { _, err := st.PutSettings(e.ctx, q, store.DefaultSettings()); return err }
		}
		if e.caps.Redrive {
			calls["redrive"] = func() error { _, err := st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true}); return err }
		}
		if e.caps.Purge {
			calls["purge"] = func() error { _, err := st.Purge(e.ctx, q, store.StateDead); return err }
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, store.ErrClosed) {
				e.Errorf("%s after close: error %v, want ErrClosed", name, err)
			}
		}
		e.st.queues = nil // there is nothing left to count
		ticks, stop := st.Wake(q)
		stop()
		select {
		case _, open := <-ticks:
			if !open {
				e.Error("wake after close: a closed channel, which makes a sleeper spin")
			}
		default:
		}
	}},
	{"calls in flight end well or are told", 0, func(e *env) {
		past := e.past()
		together(8, func(worker int) {
			if worker == 0 {
				time.Sleep(2 * time.Millisecond)
				if err := e.in.Store.Close(); err != nil {
					e.Errorf("close: %v", err)
				}
				return
			}
			for i := 0; ; i++ {
				_, err := e.st.Schedule(e.ctx, []store.NewTask{{Queue: q, ID: fmt.Sprint(worker, "/", i), Due: past}})
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						e.Errorf("schedule while the store is closed: %v", err)
					}
					return
				}
			}
		})
		e.st.queues = nil
	}},
	{"capabilities are complete", 0, func(e *env) {
		c := e.caps
		if c.Name == "" || c.Durability == "" || c.MaxPayload <= 0 {
			e.Errorf("name %q, durability %q, max payload %d", c.Name, c.Durability, c.MaxPayload)
		}
		if e.in.Store.Capabilities() != c {
			e.Error("they changed while the store was open")
		}
	}},
}
