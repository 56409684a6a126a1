package storetest

import (
	"errors"

	"github.com/duetime/duetime/store"
)

var unsupportedCases = []testCase{
	{"what a store can not do it says", 0, func(e *env) {
		e.ready("1")
		c := e.caps
		for name, call := range map[string]struct {
			has bool
			do  func() error
		}{
			"cancel": {c.Cancel, func() error { _, err := e.st.Cancel(e.ctx, []store.CancelRequest{{Queue: q, ID: "1"}}); return err }},
			"reschedule": {c.Reschedule, func() error {
				_, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{{Queue: q, ID: "1"}})
				return err
			}},
			"get": {c.Get, func() error { _, err := e.st.Get(e.ctx, []store.Key{{Queue: q, ID: "1"}}); return err }},
			"list": {c.List, func() error {
				_, err := e.st.List(e.ctx, store.ListRequest{Queue: q, State: store.StateReady})
				return err
			}},
			"settings": {c.Settings, func() error { _, err := e.st.PutSettings(e.ctx, q, store.DefaultSettings()); return err }},
			"redrive":  {c.Redrive, func() error { _, err := e.st.Redrive(e.ctx, store.RedriveRequest{Queue: q, All: true}); return err }},
			"purge":    {c.Purge, func() error { _, err := e.st.Purge(e.ctx, q, store.StateReady); return err }},
		} {
			err := call.do()
			if call.has && err != nil {
				e.Errorf("%s: %v", name, err)
			}
			if !call.has && (!errors.Is(err, store.ErrUnsupported) || err.Error() == store.ErrUnsupported.Error()) {
				e.Errorf("%s: error %v, want one that wraps ErrUnsupported and names the operation", name, err)
			}
		}
	}},
}
