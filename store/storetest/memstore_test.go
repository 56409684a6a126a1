package storetest_test

import (
	"testing"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/storetest"
)

func TestMemstore(t *testing.T) { storetest.Run(t, memory()) }

// memory is memstore on a clock that stands still until it is moved.
func memory() storetest.Harness {
	return storetest.Harness{Open: func(testing.TB) *storetest.Instance {
		clock := storetest.NewClock()
		return &storetest.Instance{
			Store:   memstore.New(&memstore.Options{Now: clock.Now}),
			Advance: clock.Advance,
		}
	}}
}

// On the real clock, as stores have to be tested whose clock can not be moved.
func TestMemstoreOnTheRealClock(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(testing.TB) *storetest.Instance {
		return &storetest.Instance{Store: memstore.New(nil)}
	}})
}

var _ store.Store = (*memstore.Store)(nil)
