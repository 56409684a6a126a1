package faultstore

import (
	"context"

	"github.com/duetime/duetime/store"
)

// Schedule implements store.Store.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	return do(ctx, s, Schedule, len(tasks), func() ([]store.Result, error) { return s.inner.Schedule(ctx, tasks) })
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	return do(ctx, s, Cancel, len(tasks), func() ([]store.Result, error) { return s.inner.Cancel(ctx, tasks) })
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	return do(ctx, s, Reschedule, len(tasks), func() ([]store.Result, error) { return s.inner.Reschedule(ctx, tasks) })
}

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	return do(ctx, s, Claim, len(requests), func() ([]store.ClaimResult, error) { return s.inner.Claim(ctx, requests) })
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	return do(ctx, s, Settle, len(settlements), func() ([]store.Result, error) { return s.inner.Settle(ctx, settlements) })
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.Key) ([]store.Result, error) {
	return do(ctx, s, Get, len(keys), func() ([]store.Result, error) { return s.inner.Get(ctx, keys) })
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, request store.ListRequest) (store.ListPage, error) {
	return do(ctx, s, List, 1, func() (store.ListPage, error) { return s.inner.List(ctx, request) })
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	return do(ctx, s, Queues, 1, func() ([]string, error) { return s.inner.Queues(ctx) })
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, queue string) (store.Stats, error) {
	return do(ctx, s, Stats, 1, func() (store.Stats, error) { return s.inner.Stats(ctx, queue) })
}

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, queue string) (store.Settings, error) {
	return do(ctx, s, Settings, 1, func() (store.Settings, error) { return s.inner.Settings(ctx, queue) })
}

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, queue string, settings store.Settings) (store.Settings, error) {
	return do(ctx, s, PutSettings, 1, func() (store.Settings, error) { return s.inner.PutSettings(ctx, queue, settings) })
}

// Redrive implements store.Store.
func (s *Store) Redrive(ctx context.Context, request store.RedriveRequest) (int, error) {
	return do(ctx, s, Redrive, 1, func() (int, error) { return s.inner.Redrive(ctx, request) })
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, queue string, state store.State) (int, error) {
	return do(ctx, s, Purge, 1, func() (int, error) { return s.inner.Purge(ctx, queue, state) })
}

// Import implements store.Importer, where the wrapped store does.
func (s *Store) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	inner, ok := store.As[store.Importer](s.inner)
	if !ok {
		return nil, store.Unsupported(s.inner.Capabilities().Name, "import")
	}
	return do(ctx, s, Import, len(tasks), func() ([]store.Result, error) { return inner.Import(ctx, tasks) })
}

// Wake implements store.Store.
func (s *Store) Wake(queue string) (<-chan struct{}, func()) {
	if s.fault(Wake, 1).FailBefore != nil {
		return make(chan struct{}), func() {}
	}
	return s.inner.Wake(queue)
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities { return s.inner.Capabilities() }

// Close implements store.Store. No fault happens to it.
func (s *Store) Close() error { return s.inner.Close() }
