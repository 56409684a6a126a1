package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
)

// payloads hands out payloads of one length that a compressing store can not make
// much smaller.
type payloads struct {
	text []byte
	n    int
}

func newPayloads(n int) *payloads {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	rnd := rand.New(rand.NewPCG(1, 2))
	p := &payloads{text: make([]byte, n+1<<16), n: n}
	for i := range p.text {
		p.text[i] = letters[rnd.IntN(len(letters))]
	}
	return p
}

func (p *payloads) of(i int) []byte {
	at := i * 7919 & (1<<16 - 1)
	return p.text[at : at+p.n]
}

// taskID is 20 bytes long.
func taskID(i int) string {
	b := make([]byte, 0, 20)
	b = append(b, "task-"...)
	digits := strconv.AppendInt(nil, int64(i), 10)
	for range 15 - len(digits) {
		b = append(b, '0')
	}
	return string(append(b, digits...))
}

func (r *runner) task(i int) duetime.NewTask {
	return duetime.NewTask{ID: taskID(i), Payload: r.text.of(i)}
}

// produce has goroutines make calls for so many tasks each, until n tasks are done
// or the time is up; length 0 is no bound. It returns how many were done and how
// long it took.
func produce(ctx context.Context, goroutines, n, batch int, length time.Duration, call func(ctx context.Context, from, to int) error) (done int, took time.Duration, err error) {
	var next, ok atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	begun := time.Now()
	for range goroutines {
		all.Go(func() {
			for ctx.Err() == nil && (length == 0 || time.Since(begun) < length) {
				from := int(next.Add(int64(batch))) - batch
				if from >= n {
					return
				}
				to := min(from+batch, n)
				if err := call(ctx, from, to); err != nil {
					cancel(err)
					return
				}
				ok.Add(int64(to - from))
			}
		})
	}
	all.Wait()
	took = time.Since(begun)
	return int(ok.Load()), took, context.Cause(ctx)
}

// schedule is a call for produce that schedules tasks. due says when; the zero
// time with no delay is now.
func (r *runner) schedule(queue string, due func(i int) (at time.Time, delay time.Duration)) func(ctx context.Context, from, to int) error {
	return func(ctx context.Context, from, to int) error {
		r.queues.count(queue, to-from)
		if to-from == 1 {
			t := r.task(from)
			t.Due, t.Delay = due(from)
			answer, err := r.client.Schedule(ctx, queue, t)
			return created(answer, err)
		}
		tasks := make([]duetime.NewTask, to-from)
		for i := range tasks {
			tasks[i] = r.task(from + i)
			tasks[i].Due, tasks[i].Delay = due(from + i)
		}
		answers, err := r.client.ScheduleMany(ctx, queue, tasks)
		if err != nil {
			return err
		}
		for i := range answers {
			if err := created(answers[i], answers[i].Err); err != nil {
				return err
			}
		}
		return nil
	}
}

func created(s duetime.Scheduled, err error) error {
	if err == nil && s.Outcome != store.Created {
		err = fmt.Errorf("scheduling %s: %v in place of created", s.ID, s.Outcome)
	}
	return err
}

// fillBatch is how many tasks a call takes that only prepares a measurement.
const fillBatch = 1000

// fillQueue puts n tasks into a queue.
func (r *runner) fillQueue(ctx context.Context, queue string, from, n int, due func(i int) (time.Time, time.Duration)) error {
	call := r.schedule(queue, due)
	_, _, err := produce(ctx, r.Producers, n, fillBatch, 0, func(ctx context.Context, a, b int) error {
		return call(ctx, from+a, from+b)
	})
	return err
}

// later makes the due times of tasks that are not to come due meanwhile: anywhere
// in the hour that begins when they are far.
func (r *runner) later(int) (time.Time, time.Duration) {
	far := r.far()
	if r.caps.Purge {
		far += time.Duration(rand.Int64N(int64(time.Hour)))
	}
	return time.Time{}, far.Round(time.Millisecond)
}

// past makes the due times of tasks that have been due for a while, in order.
func past(n int) func(i int) (time.Time, time.Duration) {
	begin := time.Now().Add(-time.Second - time.Duration(n)*time.Microsecond)
	return func(i int) (time.Time, time.Duration) {
		return begin.Add(time.Duration(i) * time.Microsecond), 0
	}
}
