package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/faultstore"
	"github.com/duetime/duetime/store/memstore"
)

func schedule(ctx context.Context, s store.Store, id string) (store.Outcome, error) {
	r, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: id}})
	if err != nil {
		return 0, err
	}
	return r[0].Outcome, nil
}

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		fault   faultstore.Fault
		err     error
		outcome store.Outcome
		stored  store.Outcome // what Get says afterwards
	}{
		"none":                     {faultstore.Fault{}, nil, store.Created, store.Found},
		"never reaches the store":  {faultstore.Fault{FailBefore: boom}, boom, 0, store.NotFound},
		"done, the answer is lost": {faultstore.Fault{FailAfter: boom}, boom, 0, store.Found},
		"delivered twice":          {faultstore.Fault{Twice: true}, nil, store.Exists, store.Found},
	} {
		t.Run(name, func(t *testing.T) {
			s := faultstore.New(memstore.New(nil), faultstore.Nth(faultstore.Schedule, 2, c.fault))
			ctx := t.Context()
			if o, err := schedule(ctx, s, "first"); o != store.Created || err != nil {
				t.Fatalf("the first call: %v, %v", o, err)
			}
			if o, err := schedule(ctx, s, "second"); !errors.Is(err, c.err) || err == nil && o != c.outcome {
				t.Errorf("the second call: %v, %v; want %v, %v", o, err, c.outcome, c.err)
			}
			r, err := s.Get(ctx, []store.Key{{Queue: "q", ID: "second"}})
			if err != nil || r[0].Outcome != c.stored {
				t.Errorf("afterwards: %v, %v; want %v", r, err, c.stored)
			}
			if n := s.Calls(faultstore.Schedule); n != 2 {
				t.Errorf("%d calls, want 2", n)
			}
		})
	}
}

func TestDelaysEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memstore.New(nil), faultstore.Join(
			faultstore.Nth(faultstore.Schedule, 1, faultstore.Fault{DelayBefore: time.Minute}),
			faultstore.Nth(faultstore.Schedule, 0, faultstore.Fault{DelayAfter: time.Hour}),
		))
		start := time.Now()
		if _, err := schedule(t.Context(), s, "1"); err != nil || time.Since(start) != time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := schedule(ctx, s, "2"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that of the context", err)
		}
		s.SetScript(nil)
		if o, err := schedule(t.Context(), s, "2"); o != store.Exists || err != nil {
			t.Errorf("the answer was late, not the call: %v, %v", o, err)
		}
	})
}

func TestLostTicks(t *testing.T) {
	s := faultstore.New(memstore.New(nil), faultstore.Nth(faultstore.Wake, 1, faultstore.Fault{FailBefore: faultstore.ErrInjected}))
	lost, stop := s.Wake("q")
	defer stop()
	ticks, stop := s.Wake("q")
	defer stop()
	if _, err := schedule(t.Context(), s, "1"); err != nil {
		t.Fatal(err)
	}
	<-ticks
	select {
	case <-lost:
		t.Error("a tick that was to be lost")
	default:
	}
}

func TestRandomSharesAndReplays(t *testing.T) {
	count := func() (n int) {
		script := faultstore.Random(7, 0.1, faultstore.Fault{Twice: true}, faultstore.Fault{FailAfter: faultstore.ErrInjected})
		for range 10_000 {
			if script(faultstore.Call{}) != (faultstore.Fault{}) {
				n++
			}
		}
		return n
	}
	first := count()
	if first < 800 || first > 1200 || first != count() {
		t.Errorf("%d faults of 10,000 calls, then %d; want a tenth, the same each time", first, count())
	}
}
