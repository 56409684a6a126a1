package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime/internal/migrate"
	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
)

const categoryMove = "moving"

func (a *app) migrateCommand() *cli.Command {
	return &cli.Command{
		Name:      "migrate",
		Category:  categoryMove,
		Usage:     "move tasks from one store to another while both are in use",
		ArgsUsage: "FROM TO",
		Description: "FROM and TO are stores: " + storeForms + ".\n\n" +
			"Scheduled and dead tasks and the queues' settings go over. Each task moves exactly once, also\n" +
			"where this command is killed: the same command then goes on. A queue of FROM is paused while it\n" +
			"is moved, but for reading; new tasks that producers schedule there meanwhile go over too. TO may\n" +
			"be in use: what is due runs there at once.\n\n" +
			"Exit status 1 where some tasks stay at FROM, which are named.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "queue", Usage: "move only this `QUEUE`; may be repeated"},
			&cli.StringFlag{Name: "wait", Value: "1m", Usage: "how long to wait for tasks of a queue that are running at FROM"},
		},
		Action: a.migrate,
	}
}

func (a *app) migrate(ctx context.Context, c *cli.Command) (err error) {
	args, err := arguments(c, "FROM", "TO")
	if err != nil {
		return err
	}
	wait, err := timetext.Duration("--wait", c.String("wait"))
	if err != nil {
		return err
	}
	if wait < 0 {
		return store.NewInputError("--wait", wait, "must be 0 or more")
	}
	for _, queue := range c.StringSlice("queue") {
		if err := store.CheckQueue(queue); err != nil {
			return err
		}
	}
	for i, field := range []string{"FROM", "TO"} {
		if args[i] == "" {
			return store.NewInputError(field, "", "names no store: is a variable empty?")
		}
	}
	names := [2]string{storeName(args[0]), storeName(args[1])}
	if names[0] == names[1] {
		return store.NewInputError("TO", names[1], "is the same store as FROM")
	}
	if err := isStore(args[0]); err != nil {
		return err
	}
	var stores [2]store.Store
	for i, url := range args {
		st, err := openToMove(ctx, url)
		if err != nil {
			return explain(err, url)
		}
		defer func() {
			if closeErr := st.Close(); err == nil && closeErr != nil {
				err = fmt.Errorf("closing the store %s: %w", names[i], closeErr)
			}
		}()
		stores[i] = st
	}
	var obeyed time.Duration
	if strings.HasPrefix(args[0], "embedded:") {
		obeyed = time.Nanosecond // nobody else has it open
	}
	bar := newProgress(a.stderr)
	report, err := migrate.Run(ctx, stores[0], stores[1], migrate.Options{
		Queues: c.StringSlice("queue"), To: names[1], Wait: wait, Obeyed: obeyed,
		Progress: func(p migrate.Progress) {
			note := p.Queue
			if p.Waiting > 0 {
				note = fmt.Sprintf("%s: waiting for %s", p.Queue, plural(p.Waiting, "1 that is running", "%d that are running"))
			}
			bar.show(p.Done, p.Total, note)
		},
	})
	bar.clear()
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return errors.New("interrupted before anything was moved")
	}
	if c.Bool("json") {
		if jsonErr := printJSON(a.stdout, migrationJSON(report, err)); err == nil {
			err = jsonErr
		}
	} else if err == nil || len(report.Queues) > 0 {
		a.printMigration(report, names, err)
	}
	total := report.Total()
	switch {
	case errors.Is(err, store.ErrUnsupported): // nothing was touched, nor would it be another time
		return err
	case err != nil:
		return fmt.Errorf("%w; run the same command again to go on", err)
	case report.Interrupted:
		return errors.New("interrupted: what is not moved yet goes on at FROM; run the same command again to move it")
	case total.Stuck+total.Running > 0:
		return fmt.Errorf("%s at FROM", plural(total.Stuck+total.Running, "1 task is still", "%d tasks are still"))
	}
	return nil
}

// storeName is how a store is called in messages and in the books of a move.
func storeName(url string) string {
	if path, ok := strings.CutPrefix(url, "embedded:"); ok {
		path, _, _ = strings.Cut(strings.TrimPrefix(path, "//"), "?")
		if abs, err := filepath.Abs(path); err == nil && path != "" {
			return "embedded:" + abs
		}
	}
	return strings.TrimSuffix(storeurl.Shown(url), "/")
}

// isStore refuses an embedded store that is not there, which opening would make.
func isStore(url string) error {
	path, ok := strings.CutPrefix(url, "embedded:")
	if !ok {
		return nil
	}
	path, _, _ = strings.Cut(strings.TrimPrefix(path, "//"), "?")
	if path == "" || diskstore.Exists(path) {
		return nil // or opening it says what is wrong
	}
	return fmt.Errorf("there is no store at FROM, %s: is the name right?", storeName(url))
}

// openToMove opens a store for a command that takes a while: it outlasts a restart
// of a server, but a server that is not there at first is told of at once.
func openToMove(ctx context.Context, url string) (store.Store, error) {
	if url == "memory:" {
		return nil, store.NewInputError("store", url, "is gone when this command ends, and no other process sees it")
	}
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "amqp", "amqps": // patience is about opening it alone
		return openStore(ctx, url, false)
	case "http", "https":
		st, err := openStore(ctx, url, false)
		if err != nil {
			return nil, err
		}
		if err := st.Close(); err != nil {
			return nil, err
		}
	}
	return openStore(ctx, url, true)
}

func (a *app) printMigration(r *migrate.Report, names [2]string, err error) {
	say := func(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }
	total := r.Total()
	say("moved %s and %s from %s to %s", count(total.Live, "task"), plural(total.Dead, "1 dead one", "%d dead ones"), names[0], names[1])
	for _, q := range r.Queues {
		notes := []string{count(q.Live, "task")}
		if q.Dead > 0 {
			notes = append(notes, fmt.Sprintf("%d dead", q.Dead))
		}
		switch q.Settings {
		case migrate.SettingsCopied:
			notes = append(notes, "settings copied")
		case migrate.SettingsKept:
			notes = append(notes, "settings not copied: TO has others")
		case migrate.SettingsNone:
			notes = append(notes, "settings not copied: TO has none")
		}
		if q.CountersLost {
			notes = append(notes, "failures and other counters begin anew: TO can not take them")
		}
		if q.StaysPaused {
			notes = append(notes, "still paused at FROM")
		}
		say("  %s: %s", q.Queue, strings.Join(notes, ", "))
		for _, s := range q.FirstStuck {
			say("    stays at FROM: %s %s", preview(s.ID, 60), s.Why)
		}
		if more := q.Stuck - int64(len(q.FirstStuck)); more > 0 {
			say("    and %d more", more)
		}
		for _, id := range q.FirstRunning {
			say("    still running at FROM: %s", preview(id, 60))
		}
		if more := q.Running - int64(len(q.FirstRunning)); more > 0 {
			say("    and %d more", more)
		}
	}
	if err == nil && !r.Interrupted {
		say("now point producers and workers to TO; what producers schedule at FROM until then is moved by the same command")
	}
}

type migratedQueueJSON struct {
	Queue        string   `json:"queue"`
	Moved        int64    `json:"moved"`
	Dead         int64    `json:"dead"`
	Stays        int64    `json:"stays"`
	FirstStays   []stuck  `json:"first_stays,omitempty"`
	Running      int64    `json:"running"`
	FirstRunning []string `json:"first_running,omitempty"`
	Settings     string   `json:"settings"`
	CountersLost bool     `json:"counters_lost,omitempty"`
	StaysPaused  bool     `json:"stays_paused,omitempty"`
}

type stuck struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

func migrationJSON(r *migrate.Report, err error) any {
	total := r.Total()
	queues := make([]migratedQueueJSON, len(r.Queues))
	for i, q := range r.Queues {
		queues[i] = migratedQueueJSON{
			Queue: q.Queue, Moved: q.Live, Dead: q.Dead, Stays: q.Stuck, Running: q.Running, FirstRunning: q.FirstRunning,
			Settings:     [...]string{"default", "same", "copied", "kept", "none"}[q.Settings],
			CountersLost: q.CountersLost, StaysPaused: q.StaysPaused,
		}
		for _, s := range q.FirstStuck {
			queues[i].FirstStays = append(queues[i].FirstStays, stuck(s))
		}
	}
	return struct {
		Moved    int64               `json:"moved"`
		Dead     int64               `json:"dead"`
		Stays    int64               `json:"stays"`
		Running  int64               `json:"running"`
		Finished bool                `json:"finished"`
		Queues   []migratedQueueJSON `json:"queues"`
	}{total.Live, total.Dead, total.Stuck, total.Running, err == nil && !r.Interrupted, queues}
}
