// Package batch makes one call of a store out of many that are made at the same
// time.
//
// It is group commit without a timer: a call that finds nothing in flight goes
// to the store at once, on its caller's goroutine; those that come meanwhile
// collect, and go together when the one in flight is back. So a lone caller waits
// no longer than without, and the more callers there are, the larger the batches.
// Where a store's calls do not wait for each other, some are in flight at a time.
package batch

import (
	"context"
	"maps"

	"github.com/duetime/duetime/store"
)

const (
	// maxBytes bounds the payloads that are put together in one call, for the sake
	// of stores that send a call in one message.
	maxBytes = 8 << 20
	// large is from how many items on a call goes to the store as it is: there is
	// little to gain, and small calls need not wait for it.
	large = 1024
)

// Wrap returns a store whose Schedule, Cancel, Reschedule, Settle and Get are
// batched across callers; all else goes through. A caller whose context ends gets
// its error at once, and the batch goes on without it: as ever after an error,
// what became of the call is unknown. Wrapping a store that is wrapped already
// returns it as it is.
func Wrap(st store.Store) store.Store {
	if b, ok := st.(*batched); ok {
		return b
	}
	width := 1
	if o, ok := store.As[store.Overlapper](st); ok {
		width = o.Overlap()
	}
	return &batched{
		Store:      st,
		schedule:   group[store.NewTask, store.Result]{width: width, call: st.Schedule, size: sizeOfTask, keep: keepTask},
		cancel:     group[store.CancelRequest, store.Result]{width: width, call: st.Cancel},
		reschedule: group[store.RescheduleRequest, store.Result]{width: width, call: st.Reschedule},
		settle:     group[store.Settlement, store.Result]{width: width, call: st.Settle, size: sizeOfSettlement},
		get:        group[store.Key, store.Result]{width: width, call: st.Get},
	}
}

type batched struct {
	store.Store

	schedule   group[store.NewTask, store.Result]
	cancel     group[store.CancelRequest, store.Result]
	reschedule group[store.RescheduleRequest, store.Result]
	settle     group[store.Settlement, store.Result]
	get        group[store.Key, store.Result]
}

// Unwrap is for store.As.
func (b *batched) Unwrap() store.Store { return b.Store }

func (b *batched) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	return b.schedule.do(ctx, tasks)
}

func (b *batched) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	return b.cancel.do(ctx, tasks)
}

func (b *batched) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	return b.reschedule.do(ctx, tasks)
}

func (b *batched) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	return b.settle.do(ctx, settlements)
}

func (b *batched) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	return b.get.do(ctx, keys)
}

func sizeOfTask(t *store.NewTask) int { return len(t.Payload) }

func sizeOfSettlement(s *store.Settlement) int { return min(len(s.Error), store.MaxErrorBytes) }

// keepTask makes a copy of what the caller may change once it has its memory
// back, which is when its context ends, while the batch goes on.
func keepTask(t *store.NewTask) {
	if t.Payload != nil {
		t.Payload = append(make([]byte, 0, len(t.Payload)), t.Payload...)
	}
	t.Headers = maps.Clone(t.Headers)
}
