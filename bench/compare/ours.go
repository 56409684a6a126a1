package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
)

// ours is a store of this project, used as programs use it.
type ours struct {
	client *duetime.Client
	store  store.Store
	hands  int // 0: the worker's default
	queue  string
	acked  atomic.Pointer[func()]
	weigh  func(ctx context.Context) (int64, error) // nil: not known
	end    func()                                   // ends the server; may be nil
	fresh  func() string                            // another queue for each run, for stores that can not purge
}

func newOurs(st store.Store, hands int, end func()) *ours {
	o := &ours{store: st, hands: hands, queue: "compare", end: end}
	o.client = duetime.NewClient(st, &duetime.ClientOptions{
		Logger: slog.New(slog.DiscardHandler),
		Hooks: &duetime.Hooks{Settled: func(_ *duetime.Task, out duetime.Outcome, _ time.Duration, _ error) {
			if f := o.acked.Load(); f != nil && out == duetime.OutcomeAcked {
				(*f)()
			}
		}},
	})
	return o
}

func (o *ours) reset(ctx context.Context) error {
	if o.fresh != nil {
		o.queue = o.fresh()
		// A queue that is used for the first time is made then, which is not what is
		// measured.
		soon := time.Now().Add(time.Second)
		return o.put(ctx, 0, -1, 0, func(int) time.Time { return soon })
	}
	for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead} {
		if _, err := o.client.Purge(ctx, o.queue, state); err != nil {
			return err
		}
	}
	return nil
}

func (o *ours) put(ctx context.Context, _, from, to int, due func(int) time.Time) error {
	if to-from == 1 {
		_, err := o.client.Schedule(ctx, o.queue, duetime.NewTask{ID: id(from), Due: due(from), Payload: payload(from, due(from))})
		return err
	}
	tasks := make([]duetime.NewTask, to-from)
	for i := range tasks {
		n := from + i
		tasks[i] = duetime.NewTask{ID: id(n), Due: due(n), Payload: payload(n, due(n))}
	}
	answers, err := o.client.ScheduleMany(ctx, o.queue, tasks)
	for i := range answers {
		if err == nil {
			err = answers[i].Err
		}
	}
	return err
}

func (o *ours) consume(ctx context.Context, on func([]byte), acked func()) (func(), error) {
	o.acked.Store(&acked)
	ctx, cancel := context.WithCancel(ctx)
	w := duetime.NewWorker(o.client, &duetime.WorkerOptions{Concurrency: o.hands})
	w.Handle(o.queue, func(_ context.Context, t *duetime.Task) error {
		on(t.Payload)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		<-ended
	}, nil
}

func (o *ours) memory(ctx context.Context) (int64, error) { return o.weigh(ctx) }

func (o *ours) close() {
	_ = o.client.Close()
	if o.end != nil {
		o.end()
	}
}
