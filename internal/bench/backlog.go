package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	perTask = "µs/task"
	// backlogSpan is within which tasks that wait come due, beginning in an hour.
	backlogSpan = 365 * 24 * time.Hour
	// backlogCalls is how many calls of an operation are one repeat.
	backlogCalls = 20
)

// backlog is a queue in which more and more tasks wait.
type backlog struct {
	r     *runner
	queue string
	size  int // how many were scheduled to wait, those that were cancelled included
	next  int // number of the next task that is due

	memory, disk int64 // when it was empty; negative: not known
}

func (r *runner) planBacklog() []measurement {
	b := &backlog{r: r, memory: -1, disk: -1}
	var list []measurement
	for _, n := range r.Backlog {
		operations := b.operations()
		m := measurement{
			note:  fmt.Sprintf("backlog of %d", n),
			ready: func(ctx context.Context) error { return b.grow(ctx, n) },
			run: func(ctx context.Context, size float64) ([]float64, error) {
				return b.costs(ctx, operations, scaled(backlogCalls, size))
			},
			done: func(ctx context.Context) error {
				if n == r.Backlog[len(r.Backlog)-1] {
					return r.queues.empty(ctx, b.queue)
				}
				return nil
			},
		}
		for _, o := range operations {
			m.figures = append(m.figures, Figure{
				Job: Backlog, Name: "backlog_" + o.name, Backlog: n, Unit: perTask,
				Label: fmt.Sprintf("%s, %d a call", o.name, r.Batch),
			})
		}
		list = append(list, m)
	}
	return list
}

// operation is something whose cost beside a backlog is measured: one call, for so
// many tasks.
type operation struct {
	name string
	call func(ctx context.Context) error
}

// operations are those that the store has. An ack ends what the claim before it has
// begun, and the claim takes what was scheduled before, so that each repeat leaves
// the backlog as it was but for what was cancelled.
func (b *backlog) operations() []operation {
	var claimed [][]store.Lease
	n := b.r.Batch
	list := []operation{
		{"schedule", b.scheduleDue},
		{"claim", func(ctx context.Context) error {
			leases, err := b.claim(ctx, n)
			claimed = append(claimed, leases)
			return err
		}},
		{"ack", func(ctx context.Context) error {
			leases := claimed[0]
			claimed = claimed[1:]
			acks := make([]store.Settlement, len(leases))
			for i := range leases {
				acks[i] = store.Settlement{Receipt: leases[i].Receipt, Action: store.Ack}
			}
			results, err := b.r.store.Settle(ctx, acks)
			return b.want(results, err, store.Acked)
		}},
	}
	if b.r.caps.Reschedule {
		list = append(list, operation{"reschedule", b.reschedule})
	}
	if b.r.caps.Cancel {
		list = append(list, operation{"cancel", b.cancel})
	}
	return list
}

// costs makes so many calls of each operation, one operation after the other, and
// returns what each took for a task.
func (b *backlog) costs(ctx context.Context, operations []operation, calls int) ([]float64, error) {
	values := make([]float64, len(operations))
	for i, o := range operations {
		begun := time.Now()
		for range calls {
			if err := o.call(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", o.name, err)
			}
		}
		values[i] = float64(time.Since(begun)) / float64(time.Microsecond) / float64(calls*b.r.Batch)
	}
	return values, nil
}

// grow adds tasks until n wait, and says what they take.
func (b *backlog) grow(ctx context.Context, n int) (err error) {
	if b.queue == "" {
		if b.queue, err = b.r.queues.open(ctx, "backlog"); err != nil {
			return err
		}
		if b.memory, b.disk, err = b.footprint(ctx); err != nil {
			return err
		}
	}
	begin := time.Now().Add(time.Hour)
	const step = 100_000 // after each of which the progress is told
	for b.size < n {
		k := min(step, n-b.size)
		err := b.r.fillQueue(ctx, b.queue, b.size, k, func(int) (time.Time, time.Duration) {
			return begin.Add(rand.N(backlogSpan)).Truncate(time.Millisecond), 0
		})
		if err != nil {
			return err
		}
		b.size += k
		b.r.filling(b.size, n)
	}
	memory, disk, err := b.footprint(ctx)
	if err != nil {
		return err
	}
	b.takes("memory", memory, b.memory, n)
	b.takes("disk", disk, b.disk, n)
	return nil
}

func (b *backlog) footprint(ctx context.Context) (memory, disk int64, err error) {
	if b.r.Footprint == nil {
		return -1, -1, nil
	}
	return b.r.Footprint(ctx)
}

// takes reports what a task takes, where that is known. Stores make room in steps,
// so with few tasks it says little, and none is said where nothing has grown.
func (b *backlog) takes(what string, now, before int64, n int) {
	if now < 0 || before < 0 || now <= before {
		return
	}
	f := Figure{
		Job: Backlog, Name: "backlog_" + what, Label: what + " of a task that waits", Unit: "bytes/task", Backlog: n,
		Values: []float64{float64(now-before) / float64(n)},
	}
	f.summarize()
	b.r.report.Figures = append(b.r.report.Figures, f)
}

func (b *backlog) newTask(number int, due time.Time) store.NewTask {
	return store.NewTask{Queue: b.queue, ID: taskID(number), Payload: b.r.text.of(number), Due: due}
}

// duesFrom is where the numbers of tasks begin that are due.
const duesFrom = 1_000_000_000

func (b *backlog) scheduleDue(ctx context.Context) error {
	tasks := make([]store.NewTask, b.r.Batch)
	now := time.Now().Add(-time.Second)
	for i := range tasks {
		tasks[i] = b.newTask(duesFrom+b.next, now)
		b.next++
	}
	results, err := b.r.store.Schedule(ctx, tasks)
	return b.want(results, err, store.Created)
}

// claim takes n tasks, in one call as a rule; a store may give fewer than it has.
func (b *backlog) claim(ctx context.Context, n int) (leases []store.Lease, err error) {
	for begun := time.Now(); len(leases) < n; {
		results, err := b.r.store.Claim(ctx, []store.ClaimRequest{{Queue: b.queue, Max: n - len(leases), Lease: 10 * time.Minute, Worker: "duetime-bench"}})
		if err != nil {
			return leases, err
		}
		if results[0].Err != nil {
			return leases, results[0].Err
		}
		leases = append(leases, results[0].Tasks...)
		if time.Since(begun) > stall {
			return leases, errors.New("tasks that are due are not handed out")
		}
	}
	return leases, nil
}

// waiting are the numbers of tasks that may still wait, each once, anywhere in the
// backlog.
func (b *backlog) waiting() []int {
	numbers := make([]int, 0, b.r.Batch)
	taken := make(map[int]bool, b.r.Batch)
	for len(numbers) < b.r.Batch {
		if n := rand.IntN(b.size); !taken[n] {
			taken[n] = true
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (b *backlog) reschedule(ctx context.Context) error {
	requests := make([]store.RescheduleRequest, 0, b.r.Batch)
	due := time.Now().Add(time.Hour + rand.N(backlogSpan)).Truncate(time.Millisecond)
	for _, n := range b.waiting() {
		requests = append(requests, store.RescheduleRequest{Queue: b.queue, ID: taskID(n), Due: due})
	}
	results, err := b.r.store.Reschedule(ctx, requests)
	return b.want(results, err, store.Rescheduled, store.NotFound)
}

func (b *backlog) cancel(ctx context.Context) error {
	requests := make([]store.CancelRequest, 0, b.r.Batch)
	for _, n := range b.waiting() {
		requests = append(requests, store.CancelRequest{Queue: b.queue, ID: taskID(n)})
	}
	results, err := b.r.store.Cancel(ctx, requests)
	return b.want(results, err, store.Cancelled, store.NotFound)
}

// want is an error where an outcome is not one of those that may be: of the tasks
// that wait, some were cancelled before.
func (b *backlog) want(results []store.Result, err error, may ...store.Outcome) error {
	if err != nil {
		return err
	}
	for _, r := range results {
		ok := false
		for _, o := range may {
			ok = ok || r.Outcome == o
		}
		if !ok {
			return fmt.Errorf("%v in place of %v (%w)", r.Outcome, may[0], errors.Join(r.Err, errUnexpected))
		}
	}
	return nil
}

var errUnexpected = errors.New("unexpected outcome")
