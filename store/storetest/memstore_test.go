package storetest_test

import (
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/storetest"
)

func TestMemstore(t *testing.T) {
	storetest.Run(t, harness(func(s store.Store) store.Store { return s }))
}

// Claims ahead, which stores have whose claims take long.
func TestMemstoreAhead(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(testing.TB) *storetest.Instance {
		clock := storetest.NewClock()
		return &storetest.Instance{Store: memstore.New(&memstore.Options{Now: clock.Now, Ahead: time.Millisecond}), Advance: clock.Advance}
	}})
}

// On the real clock, as stores have to be tested whose clock can not be moved.
func TestMemstoreOnTheRealClock(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for real")
	}
	storetest.Run(t, storetest.Harness{Open: func(testing.TB) *storetest.Instance {
		return &storetest.Instance{Store: memstore.New(nil)}
	}})
}

func BenchmarkMemstore(b *testing.B) {
	storetest.Benchmark(b, harness(func(s store.Store) store.Store { return s }))
}

// harness is memstore on a clock that stands still until it is moved, with
// something around it. A crash does nothing to it, so that the suite's crash
// cases are played here too.
func harness(around func(store.Store) store.Store) storetest.Harness {
	return storetest.Harness{Open: func(testing.TB) *storetest.Instance {
		clock := storetest.NewClock()
		st := around(memstore.New(&memstore.Options{Now: clock.Now}))
		return &storetest.Instance{
			Store:   st,
			Advance: clock.Advance,
			Reopen: func(testing.TB) store.Store {
				if c, ok := st.(interface{ crash() }); ok {
					c.crash()
				}
				return st
			},
		}
	}}
}
