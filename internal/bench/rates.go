package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/duetime/duetime"
)

const perSecond = "tasks/s"

func scaled(n int, size float64) int { return max(1, int(float64(n)*size)) }

func (r *runner) planSchedule() []measurement {
	var list []measurement
	add := func(goroutines, batch int, name, label string) {
		list = append(list, measurement{
			note:    "schedule, " + label,
			figures: []Figure{{Job: Schedule, Name: name, Label: label, Unit: perSecond}},
			run: func(ctx context.Context, size float64) ([]float64, error) {
				queue, err := r.queues.open(ctx, "schedule")
				if err != nil {
					return nil, err
				}
				length := time.Duration(float64(r.Length) * size)
				n := r.Tasks
				if batch > 1 {
					n *= 4 // it is so much faster
				}
				done, took, err := produce(ctx, goroutines, scaled(n, size), batch, length, r.schedule(queue, r.later))
				if err != nil {
					return nil, err
				}
				return []float64{float64(done) / took.Seconds()}, r.queues.empty(ctx, queue)
			},
		})
	}
	for _, g := range r.Goroutines {
		label := fmt.Sprintf("single calls, %d goroutines", g)
		if g == 1 {
			label = "single calls, 1 goroutine"
		}
		add(g, 1, fmt.Sprintf("schedule_single_%d", g), label)
	}
	add(r.Producers, r.Batch, "schedule_batch", fmt.Sprintf("%d tasks a call, %d goroutines", r.Batch, r.Producers))
	return list
}

func (r *runner) planDrain() measurement {
	label := fmt.Sprintf("claim, lease, ack; %d hands", r.Workers)
	return measurement{
		note:    "drain",
		figures: []Figure{{Job: Drain, Name: "drain", Label: label, Unit: perSecond}},
		run: func(ctx context.Context, size float64) ([]float64, error) {
			rate, err := r.drain(ctx, "drain", scaled(r.Tasks, size))
			return []float64{rate}, err
		},
	}
}

// drain says how fast n tasks go that are due.
func (r *runner) drain(ctx context.Context, name string, n int) (rate float64, err error) {
	queue, err := r.queues.open(ctx, name)
	if err != nil {
		return 0, err
	}
	if err := r.fillQueue(ctx, queue, 0, n, past(n)); err != nil {
		return 0, err
	}
	t := r.newTally(queue, n)
	stop := r.work(ctx, map[string]duetime.Handler{queue: func(context.Context, *duetime.Task) error {
		t.handle()
		return nil
	}})
	err = t.wait(ctx)
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return 0, err
	}
	r.queues.count(queue, -n)
	return t.rate(), r.clean(ctx, queue)
}

// clean wants a queue to be empty, as it is when all its tasks are done.
func (r *runner) clean(ctx context.Context, queue string) error {
	if r.caps.Uncounted {
		return nil
	}
	s, err := r.client.Stats(ctx, queue)
	if err != nil {
		return err
	}
	if s != (duetime.Stats{}) {
		return fmt.Errorf("all tasks of queue %s were done, and yet there are %d scheduled, %d ready, %d leased, %d dead", queue, s.Scheduled, s.Ready, s.Leased, s.Dead)
	}
	return nil
}

func (r *runner) planLifecycle() measurement {
	goroutines := r.Goroutines[len(r.Goroutines)-1]
	label := fmt.Sprintf("single calls, %d goroutines, while %d hands work", goroutines, r.Workers)
	return measurement{
		note:    "lifecycle",
		figures: []Figure{{Job: Lifecycle, Name: "lifecycle", Label: label, Unit: perSecond}},
		run: func(ctx context.Context, size float64) ([]float64, error) {
			queue, err := r.queues.open(ctx, "lifecycle")
			if err != nil {
				return nil, err
			}
			t := r.newTally(queue, 0)
			stop := r.work(ctx, map[string]duetime.Handler{queue: func(context.Context, *duetime.Task) error {
				t.handle()
				return nil
			}})
			now := func(int) (time.Time, time.Duration) { return time.Time{}, 0 }
			n, _, err := produce(ctx, goroutines, scaled(r.Tasks, size), 1, time.Duration(float64(r.Length)*size), r.schedule(queue, now))
			if err == nil {
				t.expect(n)
				err = t.wait(ctx)
			}
			if stopErr := stop(); err == nil {
				err = stopErr
			}
			if err != nil {
				return nil, err
			}
			r.queues.count(queue, -n)
			// From the first call of a producer to the last ack.
			return []float64{float64(n) / time.Duration(t.last.Load()).Seconds()}, r.clean(ctx, queue)
		},
	}
}

// planChange measures single calls of Cancel or Reschedule.
func (r *runner) planChange(job Job) measurement {
	goroutines := r.Goroutines[len(r.Goroutines)-1]
	return measurement{
		note:    string(job),
		figures: []Figure{{Job: job, Name: string(job), Label: fmt.Sprintf("single calls, %d goroutines", goroutines), Unit: perSecond}},
		run: func(ctx context.Context, size float64) ([]float64, error) {
			queue, err := r.queues.open(ctx, string(job))
			if err != nil {
				return nil, err
			}
			n := scaled(r.Tasks, size)
			if err := r.fillQueue(ctx, queue, 0, n, r.later); err != nil {
				return nil, err
			}
			done, took, err := produce(ctx, goroutines, n, 1, time.Duration(float64(r.Length)*size), func(ctx context.Context, i, _ int) error {
				if job == Cancel {
					return r.client.Cancel(ctx, queue, taskID(i))
				}
				_, delay := r.later(i)
				_, err := r.client.Reschedule(ctx, queue, taskID(i), delay)
				return err
			})
			if err != nil {
				return nil, err
			}
			return []float64{float64(done) / took.Seconds()}, r.queues.empty(ctx, queue)
		},
	}
}
