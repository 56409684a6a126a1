package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime/internal/bench"
	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/internal/svgchart"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

func (a *app) benchCommand() *cli.Command {
	return &cli.Command{
		Name:     "bench",
		Category: categoryRun,
		Usage:    "measure a store: rates, lateness, and what a backlog costs",
		Description: "Without --store it measures the embedded store in a temporary folder, in about half a minute. Any\n" +
			"other may be in use: bench works in queues of its own, whose names begin with " + bench.QueuePrefix + ",\n" +
			"and empties them, also after Ctrl-C. What else uses the store then is slower for a while.\n\n" +
			"Each figure is measured several times after a warm-up; the table has the median, the least and the most.\n\n" +
			"  schedule    tasks scheduled a second, by single calls and in batches\n" +
			"  drain       tasks that are due: claim, lease and ack, with a handler that does nothing\n" +
			"  lifecycle   both at once\n" +
			"  cancel, reschedule   single calls\n" +
			"  lateness    hand-out minus due time, with tasks due at random times\n" +
			"  herd        many tasks due in one millisecond: the first, the half and the last of them,\n" +
			"              and how late another queue is meanwhile\n" +
			"  backlog     what operations cost a task beside so many that wait, and what one takes of memory and disk",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "job", Usage: "only this `JOB`; may be repeated"},
			&cli.BoolFlag{Name: "full", Usage: "larger: a backlog of 10k, 1M and 10M, a herd of 100k, 100k tasks in a repeat, 5 repeats, windows of 10s; takes many minutes, and 4 GB of the store"},
			&cli.IntFlag{Name: "repeats", Usage: "how often each figure is measured (3)", HideDefault: true},
			&cli.StringFlag{Name: "tasks", Usage: "`TASKS` in one repeat of a rate (30k)"},
			&cli.StringFlag{Name: "length", Usage: "when a repeat of single calls ends at the latest (700ms)"},
			&cli.StringFlag{Name: "goroutines", Usage: "how many make single calls, `N,N,…` (1,64)"},
			&cli.IntFlag{Name: "batch", Usage: "tasks in a call that takes many (100)", HideDefault: true},
			&cli.IntFlag{Name: "workers", Usage: "tasks that the worker runs at a time (256)", HideDefault: true},
			&cli.IntFlag{Name: "rate", Usage: "of lateness: tasks a second (2000)", HideDefault: true},
			&cli.StringFlag{Name: "window", Usage: "of lateness: for how long, in one repeat (1500ms)"},
			&cli.StringFlag{Name: "herd", Usage: "`TASKS` due in one millisecond (10k)"},
			&cli.StringFlag{Name: "backlog", Usage: "how many `TASKS,TASKS,…` wait (10k,100k)"},
			&cli.IntFlag{Name: "payload", Usage: "bytes of a task's payload (100)", HideDefault: true},
			&cli.StringFlag{Name: "svg", Usage: "write pictures into this `FOLDER`: lateness.svg, backlog.svg"},
		},
		Action: a.bench,
	}
}

// benchOptions reads the flags.
func benchOptions(c *cli.Command) (o bench.Options, err error) {
	for _, j := range c.StringSlice("job") {
		o.Jobs = append(o.Jobs, bench.Job(j))
	}
	if c.Bool("full") {
		o = bench.Options{Jobs: o.Jobs, Tasks: 100_000, Length: 5 * time.Second, Repeats: 5, Window: 10 * time.Second, Herd: 100_000, Backlog: []int{10_000, 1_000_000, 10_000_000}}
	}
	for name, v := range map[string]*int{"repeats": &o.Repeats, "batch": &o.Batch, "workers": &o.Workers, "rate": &o.Rate, "payload": &o.Payload} {
		if c.IsSet(name) {
			if *v = c.Int(name); *v < 1 {
				return o, store.NewInputError("--"+name, *v, "must be 1 or more")
			}
		}
	}
	for name, v := range map[string]*int{"tasks": &o.Tasks, "herd": &o.Herd} {
		if c.IsSet(name) {
			if *v, err = tasksNumber("--"+name, c.String(name)); err != nil {
				return o, err
			}
		}
	}
	for name, v := range map[string]*[]int{"goroutines": &o.Goroutines, "backlog": &o.Backlog} {
		if !c.IsSet(name) {
			continue
		}
		*v = nil
		for text := range strings.SplitSeq(c.String(name), ",") {
			n, err := tasksNumber("--"+name, strings.TrimSpace(text))
			if err != nil {
				return o, err
			}
			*v = append(*v, n)
		}
	}
	for name, v := range map[string]*time.Duration{"length": &o.Length, "window": &o.Window} {
		if c.IsSet(name) {
			if *v, err = timetext.Duration("--"+name, c.String(name)); err != nil {
				return o, err
			}
			if *v <= 0 {
				return o, store.NewInputError("--"+name, *v, "must be above 0")
			}
		}
	}
	return o, o.Check()
}

// tasksNumber reads 50000, 50k or 1M.
func tasksNumber(flag, text string) (int, error) {
	digits, factor := text, 1
	if t, ok := strings.CutSuffix(text, "k"); ok {
		digits, factor = t, 1_000
	} else if t, ok := strings.CutSuffix(text, "M"); ok {
		digits, factor = t, 1_000_000
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > 1_000_000_000/factor {
		return 0, store.NewInputError(flag, text, "is not a number of tasks, such as 50000, 50k or 1M")
	}
	return n * factor, nil
}

func (a *app) bench(ctx context.Context, c *cli.Command) (err error) {
	if _, err := arguments(c); err != nil {
		return err
	}
	opts, err := benchOptions(c)
	if err != nil {
		return err
	}
	folder := c.String("svg")
	if folder != "" {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("the folder for pictures: %w", err)
		}
	}
	url := c.String("store")
	if url == "" {
		dir, err := os.MkdirTemp("", "duetime-bench-")
		if err != nil {
			return fmt.Errorf("a temporary folder for the store: %w", err)
		}
		defer os.RemoveAll(dir)
		url = "embedded:" + dir
	}
	st, err := openStore(ctx, url, false)
	if err != nil {
		return explain(err, url)
	}
	if !c.Bool("json") {
		fmt.Fprintf(a.stdout, "measuring %s (%s)\n", storeurl.Shown(url), st.Capabilities().Durability)
	}
	footprint, done, err := footprintOf(ctx, url)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	defer done()
	bar := newProgress(a.stderr)
	opts.Footprint, opts.Progress, opts.Logger = footprint, bar.show, a.logger()
	report, err := bench.Run(ctx, st, opts)
	bar.clear()
	if report != nil {
		if printErr := a.printBench(report, folder, c.Bool("json")); err == nil {
			err = printErr
		}
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted; the queues of this run were emptied")
	}
	return explain(err, url)
}

func (a *app) printBench(r *bench.Report, folder string, asJSON bool) error {
	if asJSON {
		if err := printJSON(a.stdout, r); err != nil {
			return err
		}
	} else if err := a.printFigures(r); err != nil {
		return err
	}
	if folder == "" {
		return nil
	}
	for _, chart := range r.Charts() {
		path := filepath.Join(folder, chart.File)
		if err := os.WriteFile(path, chart.SVG, 0o644); err != nil {
			return fmt.Errorf("a picture: %w", err)
		}
		if !asJSON {
			fmt.Fprintln(a.stdout, "wrote", path)
		}
	}
	return nil
}

func (a *app) printFigures(r *bench.Report) error {
	m := r.Machine
	fmt.Fprintf(a.stdout, "%s on %s, %s/%s, %s; %d repeats, payloads of %d bytes, %.0f s\n",
		count(int64(m.CPUs), "core"), cmp.Or(m.CPU, "an unnamed CPU"), m.OS, m.Arch, m.Go, r.Settings.Repeats, r.Settings.Payload, r.Seconds)
	rows := [][]string{{"JOB", "WHAT", "MEDIAN", "LEAST", "MOST", "UNIT"}}
	var job string
	for _, f := range r.Figures {
		name := string(f.Job)
		if f.Backlog > 0 {
			name += " " + svgchart.Number(float64(f.Backlog))
		}
		if len(rows) > 1 && name != job {
			rows = append(rows, nil)
		}
		shown := ""
		if name != job {
			shown, job = name, name
		}
		rows = append(rows, []string{shown, f.Label, svgchart.Number(f.Median), svgchart.Number(f.Min), svgchart.Number(f.Max), f.Unit})
	}
	if err := table(a.stdout, rows); err != nil {
		return err
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(a.stdout, "left out: %s, since %s\n", s.Job, s.Why)
	}
	return nil
}
