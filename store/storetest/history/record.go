package history

import (
	"context"
	"hash/crc32"
	"time"

	"github.com/duetime/duetime/store"
)

// recorder is a store that logs its calls.
type recorder struct {
	store.Store
	log *Log
}

// Record wraps a store so that all calls that change something are logged.
func Record(st store.Store, log *Log) store.Store {
	r := &recorder{st, log}
	if claimer, ok := store.As[store.WaitingClaimer](st); ok {
		return &waitingRecorder{r, claimer}
	}
	return r
}

// waitingRecorder is a recorder of a store that waits itself.
type waitingRecorder struct {
	*recorder
	claimer store.WaitingClaimer
}

// ClaimWait is logged as a claim.
func (r *waitingRecorder) ClaimWait(ctx context.Context, c store.ClaimRequest, wait time.Duration) (store.ClaimResult, error) {
	var result store.ClaimResult
	results, err := r.claim([]store.ClaimRequest{c}, func() ([]store.ClaimResult, error) {
		var err error
		result, err = r.claimer.ClaimWait(ctx, c, wait)
		return []store.ClaimResult{result}, err
	})
	return results[0], err
}

// Unwrap lets store.As see through.
func (r *recorder) Unwrap() store.Store { return r.Store }

func sum(payload []byte) uint32 { return crc32.ChecksumIEEE(payload) }

// end logs the answer to a call whose items are of the same order as results.
func (r *recorder) end(call, op string, items []Item, results []store.Result, err error) {
	line := Line{Call: call, Op: op, End: true}
	if err != nil {
		line.Err = err.Error()
	} else {
		for i := range results {
			items[i].Outcome, items[i].Due = results[i].Outcome.String(), results[i].Due
			if results[i].Outcome == store.Extended {
				items[i].LeaseUntil = results[i].At
			}
		}
		line.Items = items
	}
	r.log.add(line)
}

func (r *recorder) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	items := make([]Item, len(tasks))
	now := r.log.clock()
	for i := range tasks {
		t := &tasks[i]
		items[i] = Item{Queue: t.Queue, ID: t.ID, Sum: sum(t.Payload)}
		items[i].Due, _ = store.DueTime(now, t.Due, t.Delay) // wrong ones are refused by the store
	}
	call := r.log.add(Line{Op: "schedule", Items: items})
	results, err := r.Store.Schedule(ctx, tasks)
	r.end(call, "schedule", append([]Item(nil), items...), results, err)
	return results, err
}

// Import is logged as if the tasks were scheduled.
func (r *recorder) Import(ctx context.Context, tasks []store.Task) ([]store.Result, error) {
	into, ok := store.As[store.Importer](r.Store)
	if !ok {
		return nil, store.Unsupported(r.Capabilities().Name, "import")
	}
	items := make([]Item, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		items[i] = Item{Queue: t.Queue, ID: t.ID, Sum: sum(t.Payload), Due: t.Due}
	}
	call := r.log.add(Line{Op: "schedule", Items: items})
	results, err := into.Import(ctx, tasks)
	r.end(call, "schedule", append([]Item(nil), items...), results, err)
	return results, err
}

func (r *recorder) Cancel(ctx context.Context, tasks []store.CancelRequest) ([]store.Result, error) {
	items := make([]Item, len(tasks))
	for i, c := range tasks {
		items[i] = Item{Queue: c.Queue, ID: c.ID, Force: c.Force}
	}
	call := r.log.add(Line{Op: "cancel", Items: items})
	results, err := r.Store.Cancel(ctx, tasks)
	r.end(call, "cancel", append([]Item(nil), items...), results, err)
	return results, err
}

func (r *recorder) Reschedule(ctx context.Context, tasks []store.RescheduleRequest) ([]store.Result, error) {
	items := make([]Item, len(tasks))
	now := r.log.clock()
	for i, t := range tasks {
		items[i] = Item{Queue: t.Queue, ID: t.ID}
		items[i].Due, _ = store.DueTime(now, t.Due, t.Delay)
	}
	call := r.log.add(Line{Op: "reschedule", Items: items})
	results, err := r.Store.Reschedule(ctx, tasks)
	r.end(call, "reschedule", append([]Item(nil), items...), results, err)
	return results, err
}

func (r *recorder) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	return r.claim(requests, func() ([]store.ClaimResult, error) { return r.Store.Claim(ctx, requests) })
}

func (r *recorder) claim(requests []store.ClaimRequest, do func() ([]store.ClaimResult, error)) ([]store.ClaimResult, error) {
	items := make([]Item, len(requests))
	for i, c := range requests {
		items[i] = Item{Queue: c.Queue, Worker: c.Worker, AtMostOnce: c.AtMostOnce}
	}
	call := r.log.add(Line{Op: "claim", Items: items})
	results, err := do()
	line := Line{Call: call, Op: "claim", End: true}
	if err != nil {
		line.Err = err.Error()
	}
	for i := range results {
		for _, l := range results[i].Tasks {
			line.Items = append(line.Items, Item{
				Queue: l.Queue, ID: l.ID, Receipt: l.Receipt, Worker: l.Worker, AtMostOnce: requests[i].AtMostOnce, Due: l.Due, Sum: sum(l.Payload),
				ClaimedAt: l.ClaimedAt, LeaseUntil: l.LeaseUntil, Ahead: requests[i].Ahead, Generation: l.Generation, Failures: l.Failures, Lost: l.Lost,
			})
		}
	}
	r.log.add(line)
	return results, err
}

func (r *recorder) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Result, error) {
	items := make([]Item, len(settlements))
	now := r.log.clock()
	for i, s := range settlements {
		items[i] = Item{Action: s.Action.String(), Receipt: s.Receipt}
		if p, err := s.Receipt.Parse(); err == nil {
			items[i].Queue, items[i].ID = p.Queue, p.ID
		}
		switch {
		case s.Action == store.Extend && s.Lease > 0:
			items[i].LeaseUntil = now.Add(s.Lease)
		case !s.Backoff:
			items[i].Due = now.Add(max(s.Delay, 0))
		}
	}
	call := r.log.add(Line{Op: "settle", Items: items})
	results, err := r.Store.Settle(ctx, settlements)
	r.end(call, "settle", append([]Item(nil), items...), results, err)
	return results, err
}

func (r *recorder) count(op, queue string, do func() (int, error)) (int, error) {
	call := r.log.add(Line{Op: op, Items: []Item{{Queue: queue}}})
	n, err := do()
	line := Line{Call: call, Op: op, End: true, Items: []Item{{Queue: queue, Count: n}}}
	if err != nil {
		line.Err = err.Error()
	}
	r.log.add(line)
	return n, err
}

func (r *recorder) Redrive(ctx context.Context, request store.RedriveRequest) (int, error) {
	return r.count("redrive", request.Queue, func() (int, error) { return r.Store.Redrive(ctx, request) })
}

func (r *recorder) Purge(ctx context.Context, queue string, state store.State) (int, error) {
	return r.count("purge", queue, func() (int, error) { return r.Store.Purge(ctx, queue, state) })
}

// Final logs what is in the store at the end, when nobody uses it any more.
// Without it Check can not tell what was lost.
func (l *Log) Final(ctx context.Context, st store.Store) error {
	queues, err := st.Queues(ctx)
	if err != nil {
		return err
	}
	line := Line{Op: "final", End: true}
	for _, queue := range queues {
		for _, state := range store.States() {
			r := store.ListRequest{Queue: queue, State: state, Limit: store.MaxList}
			for {
				page, err := st.List(ctx, r)
				if err != nil {
					return err
				}
				for _, t := range page.Tasks {
					line.Items = append(line.Items, Item{Queue: queue, ID: t.ID})
				}
				if r.Cursor = page.Cursor; r.Cursor == "" {
					break
				}
			}
		}
	}
	l.add(line)
	return nil
}

// FinalEmpty is Final for a store that can not list, and was seen to be empty in
// another way.
func (l *Log) FinalEmpty() { l.add(Line{Op: "final", End: true}) }
