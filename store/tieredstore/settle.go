package tieredstore

import (
	"context"

	"github.com/duetime/duetime/store"
)

// Settle implements store.Store: the leases are the cold store's.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	results, err := s.cold.Settle(ctx, settlements)
	if err != nil {
		return results, err
	}
	byQueue := make(map[string][]store.Place)
	var released []standing
	for i, r := range results {
		p, ok := s.cold.PlaceOf(settlements[i].Receipt)
		if !ok {
			continue
		}
		switch r.Outcome {
		case store.Acked, store.Dead:
			p.State = 0
		case store.Retrying, store.Snoozed:
			p.State, p.At = store.StateScheduled, r.Due
		case store.Extended:
			p.State, p.At = store.StateLeased, r.At
		case store.Released:
			// When it was due only the truth knows.
			released = append(released, standing{p.Key, s.clock.now()})
			continue
		default:
			continue
		}
		byQueue[p.Queue] = append(byQueue[p.Queue], p)
	}
	for name, places := range byQueue {
		s.at("settled", name)
		s.apply(ctx, s.queue(name), places)
	}
	s.bring(ctx, released)
	return results, nil
}
