// Package bench measures a store as programs use it: through the client, which puts
// single calls together, and through the worker, which claims, leases and acks. It
// works on every store, leaves out what a store can not do and says so, touches no
// queue but its own, and leaves nothing in them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
)

// Job names one kind of measurement.
type Job string

// The jobs, in the order in which they are done.
const (
	Schedule   Job = "schedule"   // tasks scheduled a second: single calls and batches
	Drain      Job = "drain"      // tasks that are due: claim, lease, ack, with a handler that does nothing
	Lifecycle  Job = "lifecycle"  // both at once
	Cancel     Job = "cancel"     // single calls
	Reschedule Job = "reschedule" // single calls
	Lateness   Job = "lateness"   // hand-out minus due time, at a steady rate
	Herd       Job = "herd"       // many tasks that are due in the same millisecond
	Backlog    Job = "backlog"    // what operations cost beside so many tasks that wait
)

// Jobs lists all jobs.
func Jobs() []Job {
	return []Job{Schedule, Drain, Lifecycle, Cancel, Reschedule, Lateness, Herd, Backlog}
}

// QueuePrefix begins the names of all queues that this package makes.
const QueuePrefix = "duetime-bench-"

// Options say what is measured. What is zero gets the value in brackets.
type Options struct {
	Jobs       []Job         // [all]
	Repeats    int           // of each figure, after a warm-up that is not counted [3]
	Tasks      int           // in one repeat of a rate [30,000]
	Length     time.Duration // at which a repeat of a rate of single calls ends, if it has not done all tasks [0.7 s]
	Goroutines []int         // that make single calls [1 and 64]
	Batch      int           // tasks in a call that takes many [100]
	Producers  int           // goroutines that make such calls [8]
	Workers    int           // the worker's concurrency [256]
	Rate       int           // of lateness, tasks a second [2,000]
	Window     time.Duration // of lateness, one repeat [1.5 s]
	Herd       int           // tasks due in one millisecond [10,000]
	Backlog    []int         // tasks that wait, ascending [10,000 and 100,000]
	Payload    int           // bytes [100]

	// Progress is told how many of how many steps are done and what comes now. It
	// is called from the goroutine of Run. nil: nobody is.
	Progress func(done, total int64, note string)

	// Footprint tells what the store takes of memory and of disk now, in bytes;
	// negative is not known. nil: nothing is known.
	Footprint func(context.Context) (memory, disk int64, err error)

	Logger *slog.Logger // of what goes on in the background [none]

	lead  time.Duration // before the first due time tasks are scheduled, and some more for each task
	short time.Duration // ahead are tasks that are not to come due soon and can not be taken away again
}

func (o *Options) fill() error {
	defaults := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Jobs == nil {
		o.Jobs = Jobs()
	}
	defaults(&o.Repeats, 3)
	defaults(&o.Tasks, 30_000)
	defaults(&o.Batch, 100)
	defaults(&o.Producers, 8)
	defaults(&o.Workers, 256)
	defaults(&o.Rate, 2_000)
	defaults(&o.Herd, 10_000)
	defaults(&o.Payload, 100)
	if o.Length == 0 {
		o.Length = 700 * time.Millisecond
	}
	if o.Window == 0 {
		o.Window = 1500 * time.Millisecond
	}
	if o.lead == 0 {
		o.lead = 500 * time.Millisecond
	}
	if o.short == 0 {
		o.short = 2 * time.Second
	}
	if o.Goroutines == nil {
		o.Goroutines = []int{1, 64}
	}
	if o.Backlog == nil {
		o.Backlog = []int{10_000, 100_000}
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o.check()
}

// Check says what is wrong with options; what is zero is not.
func (o Options) Check() error {
	return o.fill()
}

func (o *Options) check() error {
	for _, j := range o.Jobs {
		if !slices.Contains(Jobs(), j) {
			return store.NewInputError("job", string(j), "is not known; the jobs are %s", joined(Jobs()))
		}
	}
	for _, c := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"repeats", o.Repeats, 1, 100},
		{"tasks", o.Tasks, 100, 10_000_000},
		{"batch", o.Batch, 1, store.MaxBatch},
		{"producers", o.Producers, 1, 1_000},
		{"workers", o.Workers, 1, 100_000},
		{"rate", o.Rate, 10, 1_000_000},
		{"herd", o.Herd, 100, 10_000_000},
		{"payload", o.Payload, 1, 1 << 20},
	} {
		if c.value < c.least || c.value > c.most {
			return store.NewInputError(c.name, c.value, "must be %d to %d", c.least, c.most)
		}
	}
	for _, g := range o.Goroutines {
		if g < 1 || g > 10_000 {
			return store.NewInputError("goroutines", g, "must be 1 to 10000")
		}
	}
	for i, n := range o.Backlog {
		if n < 1_000 || n > 100_000_000 || i > 0 && n <= o.Backlog[i-1] {
			return store.NewInputError("backlog", n, "must be 1000 to 100000000, and above the one before it")
		}
	}
	if o.Length < 10*time.Millisecond || o.Length > time.Hour {
		return store.NewInputError("length", o.Length, "must be 10ms to 1h")
	}
	if o.Window < 10*time.Millisecond || o.Window > time.Hour {
		return store.NewInputError("window", o.Window, "must be 10ms to 1h")
	}
	return nil
}

func joined(jobs []Job) string {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = string(j)
	}
	return strings.Join(names, ", ")
}

// runner is one call of Run.
type runner struct {
	Options
	client *duetime.Client
	store  store.Store
	caps   store.Capabilities
	queues *queues
	tally  tallies
	text   *payloads
	report *Report

	done, total int64         // steps
	perTask     time.Duration // that scheduling takes, for how long before their due times tasks are scheduled
}

// Run measures a store, which it closes at the end. Where ctx ends or something
// fails, the report has what was measured by then; the queues are emptied in any
// case, and the error says so where they could not be.
func Run(ctx context.Context, st store.Store, opts Options) (_ *Report, err error) {
	if err := opts.fill(); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	r := &runner{Options: opts, store: st, caps: st.Capabilities(), text: newPayloads(opts.Payload), perTask: slowest}
	r.client = duetime.NewClient(st, &duetime.ClientOptions{
		Logger: r.Logger,
		Hooks: &duetime.Hooks{Settled: func(t *duetime.Task, o duetime.Outcome, _ time.Duration, _ error) {
			r.tally.settled(t, o)
		}},
	})
	defer func() { err = errors.Join(err, r.client.Close()) }()
	r.queues = newQueues(r)
	r.report = newReport(&r.Options, r.caps)
	defer func() { err = errors.Join(err, r.queues.emptyAll(ctx, err != nil)) }()

	begun := time.Now()
	err = r.all(ctx)
	r.report.Seconds = time.Since(begun).Seconds()
	return r.report, err
}

// measurement is something that is run several times, and of which each run gives
// one value for each of its figures.
type measurement struct {
	note    string // what it is, for the progress bar
	figures []Figure
	// run measures once. size is 1, or less in the warm-up, where fewer tasks do.
	run func(ctx context.Context, size float64) ([]float64, error)
	// ready, if there, comes before the first run, and done after the last.
	ready, done func(ctx context.Context) error
}

func (r *runner) all(ctx context.Context) error {
	var list []measurement
	for _, job := range r.Jobs {
		m, why := r.plan(job)
		if why != "" {
			r.report.Skipped = append(r.report.Skipped, Skipped{Job: job, Why: why})
		}
		list = append(list, m...)
	}
	total := int64(len(list) * (r.Repeats + 1))
	for i := range list {
		if err := r.measure(ctx, &list[i], int64(i*(r.Repeats+1)), total); err != nil {
			return err
		}
	}
	r.Progress(total, total, "")
	return nil
}

// plan is what is to be measured for a job, and why it, or some of it, is not.
func (r *runner) plan(job Job) (list []measurement, why string) {
	cannot := func(what string) string { return fmt.Sprintf("the %s store can not %s", r.caps.Name, what) }
	switch job {
	case Schedule:
		return r.planSchedule(), ""
	case Drain:
		return []measurement{r.planDrain()}, ""
	case Lifecycle:
		return []measurement{r.planLifecycle()}, ""
	case Cancel:
		if !r.caps.Cancel {
			return nil, cannot("cancel")
		}
		return []measurement{r.planChange(Cancel)}, ""
	case Reschedule:
		if !r.caps.Reschedule {
			return nil, cannot("reschedule")
		}
		return []measurement{r.planChange(Reschedule)}, ""
	case Lateness:
		return []measurement{r.planLateness()}, ""
	case Herd:
		return []measurement{r.planHerd()}, ""
	}
	if !r.caps.Purge {
		return nil, cannot("purge: what waits could not be taken away again before it is due")
	}
	return r.planBacklog(), ""
}

// measure runs a measurement, the warm-up first, and puts its figures into the
// report.
func (r *runner) measure(ctx context.Context, m *measurement, done, total int64) error {
	r.done, r.total = done, total
	r.Progress(done, total, m.note)
	if m.ready != nil {
		if err := m.ready(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.note, err)
		}
	}
	for i := -1; i < r.Repeats; i++ {
		// What the run before has left is not this one's.
		runtime.GC()
		size := 1.0
		if i < 0 {
			size = 0.1
		}
		values, err := m.run(ctx, size)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.note, err)
		}
		for k := range values {
			if i >= 0 {
				m.figures[k].Values = append(m.figures[k].Values, values[k])
			}
		}
		r.Progress(done+int64(i)+2, total, m.note)
	}
	for _, f := range m.figures {
		f.summarize()
		r.report.Figures = append(r.report.Figures, f)
	}
	if m.done != nil {
		if err := m.done(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.note, err)
		}
	}
	return nil
}

// filling tells the progress of something that takes long before it is measured.
func (r *runner) filling(n, of int) {
	r.Progress(r.done, r.total, fmt.Sprintf("filling: %d of %d", n, of))
}
