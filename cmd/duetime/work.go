package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

func (a *app) workCommand() *cli.Command {
	return &cli.Command{
		Name:      "work",
		Category:  categoryRun,
		Usage:     "run a queue's tasks as they become due: print them, or run a command for each",
		ArgsUsage: "QUEUE",
		Description: "Without --exec each task is printed as a line of JSON, and is then done.\n" +
			"With --exec 'CMD' the shell runs CMD with the payload on standard input and these variables:\n\n" +
			"  DUETIME_QUEUE, DUETIME_ID     whose task it is\n" +
			"  DUETIME_ATTEMPT               which try this is, from 1\n" +
			"  DUETIME_FAILURES              how many tries failed\n" +
			"  DUETIME_DUE                   when it was due, RFC 3339\n" +
			"  DUETIME_HEADERS               its headers, as a JSON object\n\n" +
			"Exit status 0: the task is done. Any other: it is tried again after the queue's backoff, and the\n" +
			"end of what CMD wrote to standard error is kept as the reason. A task may run twice where a worker\n" +
			"died or was cut off; DUETIME_ATTEMPT is above 1 then. The status decides: what CMD leaves in the\n" +
			"background goes on, but what it writes later than a second after CMD's end is lost.\n\n" +
			"If this process is killed (kill -9), Linux kills CMD's shell, or what it became by exec, with it; what that\n" +
			"shell had started goes on, as all does on other systems. So begin the last command of CMD with exec.\n\n" +
			"While there is no server it waits for one, and says so.\n\n" +
			"On SIGTERM or Ctrl-C it takes no more tasks, lets those that run finish for up to --grace, then\n" +
			"ends them (SIGTERM to CMD) and gives them back. A second signal ends them at once.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "exec", Usage: "run `CMD` by sh -c for each task"},
			&cli.IntFlag{Name: "concurrency", Value: 1, Usage: "how many tasks run at the same time, up to 10000"},
			&cli.StringFlag{Name: "lease", Usage: "for how long a task stays with this worker after its last sign of life, 1ms to 24h; it is extended while the task runs. 0s: tasks are removed as they are handed out, so that they never run twice and are lost if the worker dies (default: the queue's setting)"},
			&cli.StringFlag{Name: "grace", Value: "8s", Usage: "how long running tasks may go on after a signal to stop"},
			&cli.IntFlag{Name: "max", HideDefault: true, Usage: "stop after so many tasks; 0: never"},
			&cli.StringFlag{Name: "name", Usage: "the worker's name, for people (default: host and process id)"},
		},
		Action: a.work,
	}
}

func (a *app) work(ctx context.Context, c *cli.Command) error {
	args, err := arguments(c, "QUEUE")
	if err != nil {
		return err
	}
	queue := args[0]
	job := &workJob{app: a, command: c.String("exec"), max: int64(c.Int("max"))}
	if c.IsSet("exec") && job.command == "" {
		return store.NewInputError("--exec", "", "is empty: give a command")
	}
	if job.max < 0 {
		return store.NewInputError("--max", job.max, "must be 0 (no limit) or more")
	}
	opts := duetime.QueueOptions{Concurrency: c.Int("concurrency")}
	if opts.Concurrency < 1 || opts.Concurrency > store.MaxBatch {
		return store.NewInputError("--concurrency", opts.Concurrency, "must be 1 to %d", store.MaxBatch)
	}
	if c.IsSet("lease") {
		if opts.Lease, err = timetext.Duration("--lease", c.String("lease")); err != nil {
			return err
		}
		opts.AtMostOnce = opts.Lease == 0
		if opts.Lease != 0 && (opts.Lease < store.MinLease || opts.Lease > store.MaxLease) {
			return store.NewInputError("--lease", c.String("lease"), "must be %v to %v, or 0s for at most once", store.MinLease, store.MaxLease)
		}
	}
	grace, err := timetext.Duration("--grace", c.String("grace"))
	if err != nil {
		return err
	}
	if grace < 0 {
		return store.NewInputError("--grace", c.String("grace"), "is negative, must be 0s or more")
	}
	if grace == 0 {
		grace = -1 // to the worker 0 is its default
	}
	if opts.AtMostOnce && job.max > 0 {
		opts.Concurrency = int(min(int64(opts.Concurrency), job.max))
		job.exact, job.hands = true, int64(opts.Concurrency)
	}
	// A worker goes on whatever happens to its store, so a mistake in the command
	// line has to be found before.
	settings, err := a.settingsOnceServed(ctx, c, queue)
	if ctx.Err() != nil {
		fmt.Fprintln(a.stderr, "stopping: no task is running")
		return nil
	}
	if err != nil {
		return err
	}
	hooks := &duetime.Hooks{Settled: job.settled}
	return a.with(ctx, c, true, hooks, func(client *duetime.Client) error {
		job.worker = duetime.NewWorker(client, &duetime.WorkerOptions{Name: c.String("name"), StopTimeout: grace})
		job.worker.HandleWith(queue, opts, job.handle)
		stop := job.stopAtSecondSignal()
		defer stop()
		run, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		job.stopped = make(chan struct{})
		job.stop = sync.OnceFunc(func() {
			cancel() // on return nothing is claimed any more
			close(job.stopped)
		})
		defer context.AfterFunc(ctx, job.stop)()
		fmt.Fprintf(a.stderr, "waiting for tasks of %s (Ctrl-C stops)%s\n", queue, heldBack(settings))
		err := job.worker.Run(run)
		if ctx.Err() != nil {
			job.sayStopping() // it may have been quicker than who says so
		}
		return err
	})
}

// settingsOnceServed returns the queue's settings. Where the store is a server that
// is not there, it waits for it: a worker is often started at the same time.
func (a *app) settingsOnceServed(ctx context.Context, c *cli.Command, queue string) (settings duetime.Settings, err error) {
	const pause, quiet = 500 * time.Millisecond, 30 * time.Second
	var said time.Time
	for {
		err = a.withClient(ctx, c, func(client *duetime.Client) error {
			settings, err = client.Settings(ctx, queue)
			return err
		})
		if !noServer(err) || ctx.Err() != nil {
			return settings, err
		}
		if time.Since(said) >= quiet {
			said = time.Now()
			fmt.Fprintln(a.stderr, "waiting for the server:", oneLine(err.Error()))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// heldBack says what keeps due tasks from being handed out, so that nobody
// wonders why none come.
func heldBack(s duetime.Settings) string {
	switch {
	case s.Paused:
		return "; the queue is paused: see duetime resume"
	case s.Release != store.ReleaseImmediate:
		return fmt.Sprintf("; its release setting, %q, says when due tasks are let out", s.Release)
	}
	return ""
}

// workJob is one run of duetime work.
type workJob struct {
	*app
	command string // empty: print tasks
	max     int64  // 0: no limit
	worker  *duetime.Worker

	// exact: nothing beyond max may be claimed, since it could not be given back.
	// Then hands is how many of the worker's hands may still claim.
	exact     bool
	handsLock sync.Mutex
	hands     int64

	stop    func()        // as the first signal does
	stopped chan struct{} // closed by stop, once nothing is claimed any more
	saying  sync.Once

	begun, ended, running  atomic.Int64
	stdoutLock, stderrLock sync.Mutex
}

// stopAtSecondSignal ends the running tasks at a second signal. The first one
// ends the context that the worker runs in. The third ends the process.
func (j *workJob) stopAtSecondSignal() (stop func()) {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-signals:
			}
			switch n {
			case 1:
				j.sayStopping()
			case 2:
				j.worker.Stop()
			case 3:
				os.Exit(exitFailed)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

func (j *workJob) sayStopping() {
	j.saying.Do(func() {
		if n := j.running.Load(); n > 0 {
			fmt.Fprintf(j.stderr, "stopping when %s finished; another signal ends %s now\n",
				plural(n, "the running task has", "the %d running tasks have"), plural(n, "it", "them"))
			return
		}
		fmt.Fprintln(j.stderr, "stopping: no task is running")
	})
}

func (j *workJob) handle(ctx context.Context, t *duetime.Task) error {
	if j.exact {
		err := j.run(ctx, t)
		j.restHand(ctx)
		return err
	}
	if n := j.begun.Add(1); j.max > 0 && n > j.max {
		// The worker fetched it before it knew that this is enough: it goes back
		// when the worker stops.
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return j.run(ctx, t)
}

// restHand keeps a hand that has done its task from claiming another, where the
// other hands are enough for what is left of max: the worker claims for each hand
// that is free.
func (j *workJob) restHand(ctx context.Context) {
	j.handsLock.Lock()
	left := j.max - j.ended.Add(1)
	rest := j.hands > left
	if rest {
		j.hands--
	}
	j.handsLock.Unlock()
	if left == 0 {
		j.stop()
	}
	if rest {
		select {
		case <-j.stopped:
		case <-ctx.Done():
		}
	}
}

// run does the work of one task.
func (j *workJob) run(ctx context.Context, t *duetime.Task) error {
	j.running.Add(1)
	defer j.running.Add(-1)
	if j.command != "" {
		return j.exec(ctx, t)
	}
	j.stdoutLock.Lock()
	defer j.stdoutLock.Unlock()
	late := t.Lateness().Round(time.Microsecond)
	return printJSON(j.stdout, struct {
		taskJSON
		Attempt   int     `json:"attempt"`
		ClaimedAt string  `json:"claimed_at"`
		Late      string  `json:"late"`
		LateSecs  float64 `json:"late_seconds"`
	}{toJSON(t, true), t.Attempt, t.ClaimedAt.UTC().Format(time.RFC3339Nano), late.String(), late.Seconds()})
}

// settled counts the tasks that had an end here. That they failed the worker logs
// itself.
func (j *workJob) settled(_ *duetime.Task, outcome duetime.Outcome, _ time.Duration, _ error) {
	if j.exact || outcome == duetime.OutcomeReleased {
		return // counted by restHand, or others will run it
	}
	if j.max > 0 && j.ended.Add(1) == j.max {
		// Twice: nothing of what is still there has to be waited for.
		j.worker.Stop()
		j.worker.Stop()
	}
}

// environment is what a command learns of its task.
func environment(t *duetime.Task) []string {
	headers := []byte("{}")
	if len(t.Headers) > 0 {
		headers, _ = json.Marshal(t.Headers) // a map of strings always can be
	}
	return append(
		os.Environ(),
		"DUETIME_QUEUE="+t.Queue,
		"DUETIME_ID="+t.ID,
		fmt.Sprintf("DUETIME_ATTEMPT=%d", t.Attempt),
		fmt.Sprintf("DUETIME_FAILURES=%d", t.Failures),
		"DUETIME_DUE="+utc(t.Due),
		"DUETIME_HEADERS="+string(headers),
	)
}
