package memstore

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/duetime/duetime/store"
)

// Import implements store.Importer.
func (s *Store) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	now, err := s.begin(ctx, len(tasks))
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]store.Result, len(tasks))
	for i := range tasks {
		results[i] = s.take(&tasks[i], now)
	}
	return results, nil
}

// take takes one task in as it is.
func (s *Store) take(given *store.Task, now time.Time) store.Result {
	as, err := given.CheckImport(s.maxPayload)
	if err != nil {
		return refused(err)
	}
	q := s.create(as.Queue, now)
	if old := q.tasks[as.ID]; old != nil {
		there := old.view(now, true)
		return store.Result{Outcome: store.Exists, Task: &there}
	}
	as.Payload, as.Headers = nil, maps.Clone(as.Headers)
	if len(given.Payload) > 0 {
		as.Payload = bytes.Clone(given.Payload)
	}
	s.seq++
	q.add(&task{seq: s.seq, Task: as})
	return store.Result{Outcome: store.Created, Due: as.Due, At: as.Created}
}
