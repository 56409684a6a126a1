package remotestore

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	var answer wire.QueueList
	err := s.get(ctx, "/v1/queues", nil, &answer)
	return answer.Queues, err
}

func (s *Store) queue(ctx context.Context, queue string) (wire.Queue, error) {
	var answer wire.Queue
	if err := store.CheckQueue(queue); err != nil {
		return answer, err
	}
	return answer, s.get(ctx, queuePath(queue), nil, &answer)
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, queue string) (store.Stats, error) {
	q, err := s.queue(ctx, queue)
	if err != nil {
		return store.Stats{}, err
	}
	stats := store.Stats{Scheduled: q.Counts.Scheduled, Ready: q.Counts.Ready, Leased: q.Counts.Leased, Dead: q.Counts.Dead}
	for _, p := range []struct {
		from wire.Time
		to   *time.Time
	}{{q.OldestDue, &stats.OldestDue}, {q.NextDue, &stats.NextDue}} {
		if p.from != "" {
			if *p.to, err = time.Parse(time.RFC3339Nano, string(p.from)); err != nil {
				return stats, err
			}
			*p.to = p.to.UTC()
		}
	}
	return stats, nil
}

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, queue string) (store.Settings, error) {
	q, err := s.queue(ctx, queue)
	if err != nil {
		return store.Settings{}, err
	}
	return q.Settings.Store()
}

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, queue string, settings store.Settings) (store.Settings, error) {
	if err := store.CheckQueue(queue); err != nil {
		return store.Settings{}, err
	}
	if err := settings.Check(); err != nil { // not all numbers can be said in JSON
		return store.Settings{}, err
	}
	data, err := wire.Encode(wire.FromSettingsPut(&settings))
	if err != nil {
		return store.Settings{}, err
	}
	header := http.Header{"If-Match": {strconv.Quote(strconv.FormatInt(settings.Version, 10))}}
	var answer wire.Settings
	if err := s.call(ctx, http.MethodPatch, queuePath(queue), data, once, header, &answer); err != nil {
		return store.Settings{}, err
	}
	return answer.Store()
}

// Redrive implements store.Store.
func (s *Store) Redrive(ctx context.Context, request store.RedriveRequest) (int, error) {
	if err := request.Check(); err != nil {
		return 0, err
	}
	var answer wire.Redriven
	err := s.post(ctx, queuePath(request.Queue)+"/redrive", once, wire.RedriveBody{IDs: request.IDs, All: request.All}, &answer)
	return answer.Redriven, err
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, queue string, state store.State) (int, error) {
	if err := store.CheckQueue(queue); err != nil {
		return 0, err
	}
	name := state.String()
	if _, err := store.ParseState(name); err != nil {
		return 0, err
	}
	var answer wire.Purged
	err := s.post(ctx, queuePath(queue)+"/purge", once, wire.PurgeBody{State: &name}, &answer)
	return answer.Purged, err
}

// Ping says whether the server is there and ready.
func (s *Store) Ping(ctx context.Context) error {
	var answer struct {
		Ready bool `json:"ready"`
	}
	if err := s.get(ctx, "/readyz", nil, &answer); err != nil {
		return err
	}
	if !answer.Ready {
		return errors.New("server is not ready")
	}
	return nil
}
