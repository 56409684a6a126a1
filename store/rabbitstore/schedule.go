package rabbitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

// Schedule implements store.Store. It returns when the broker has confirmed the
// tasks. Ids are not told apart: each call makes new tasks, so a call that is
// repeated since its answer was lost may make a task twice. ConflictReplace is
// refused.
func (s *Store) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	if err := s.begin(ctx, len(tasks)); err != nil {
		return nil, err
	}
	defer s.end()
	now := s.now()
	results := make([]store.Result, len(tasks))
	letters := make(map[string][]*letter) // by queue
	indexes := make(map[string][]int)
	var queues []string
	for i := range tasks {
		n := &tasks[i]
		due, err := n.Check(now, s.opts.MaxPayload)
		if err == nil && n.Conflict == store.ConflictReplace {
			err = store.NewInputError("on_conflict", "replace", "is not possible in RabbitMQ, which does not know what is scheduled under an id")
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		t := store.Task{
			Queue: n.Queue, ID: n.ID, Headers: n.Headers, Due: due, Created: store.CeilMilli(now), MaxAttempts: n.MaxAttempts,
			// The caller's slice may still be read after a call whose context ended.
			Payload: bytes.Clone(n.Payload),
		}
		results[i] = store.Result{Outcome: store.Created, Due: due, At: t.Created}
		if letters[n.Queue] == nil {
			queues = append(queues, n.Queue)
		}
		letters[n.Queue] = append(letters[n.Queue], s.letter(&t, due.Sub(now)))
		indexes[n.Queue] = append(indexes[n.Queue], i)
	}
	for _, queue := range queues {
		if err := s.know(ctx, queue); err != nil {
			return nil, fmt.Errorf("schedule into %q: %w", queue, err)
		}
	}
	for _, queue := range queues {
		list := letters[queue]
		if err := s.deliver(ctx, queue, list); err != nil {
			return nil, fmt.Errorf("schedule into %q: %w", queue, err)
		}
		for i, letter := range list {
			if letter.err != nil {
				results[indexes[queue][i]] = store.Result{Err: full(letter.err)}
			}
		}
		s.wakers.tick(queue)
	}
	return results, nil
}

// full is the error of an item that the broker would not take.
func full(err error) error { return fmt.Errorf("%w: %w", store.ErrFull, err) }

// letter is a task's message that arrives when d has passed.
func (s *Store) letter(t *store.Task, d time.Duration) *letter {
	l := &letter{message: encode(t)}
	var cc []any
	if l.key, cc = s.topology.route(s.topology.ladder.walk(d), t.Queue); cc != nil {
		l.message.Headers["CC"] = cc
	}
	return l
}

// know declares what belongs to a queue, if this process has not done so yet.
func (s *Store) know(ctx context.Context, queue string) error {
	s.mu.Lock()
	known := s.known[queue]
	s.mu.Unlock()
	if known {
		return nil
	}
	if err := s.topology.declareQueue(ctx, queue); err != nil {
		return err
	}
	if err := s.conf.name(ctx, queue); err != nil {
		return err
	}
	s.mu.Lock()
	s.known[queue] = true
	s.mu.Unlock()
	return nil
}

// deliver publishes messages of one queue. Those that find no queue, since it was
// deleted by hand, are published again once it has been declared anew. An error
// means that it is not known what became of them; otherwise letter.err says it.
func (s *Store) deliver(ctx context.Context, queue string, letters []*letter) error {
	if err := s.publisher.send(ctx, letters); err != nil {
		return err
	}
	var again []*letter
	for _, l := range letters {
		if errors.Is(l.err, errReturned) {
			again = append(again, l)
		}
	}
	if len(again) == 0 {
		return nil
	}
	s.logger.Warn("duetime: queues of RabbitMQ that were there are not there any more, and are made again", "queue", queue)
	if err := s.topology.declareLadder(ctx); err != nil {
		return err
	}
	if err := s.topology.declareQueue(ctx, queue); err != nil {
		return err
	}
	return s.publisher.send(ctx, again)
}
