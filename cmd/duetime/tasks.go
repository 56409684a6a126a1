package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
)

func (a *app) getCommand() *cli.Command {
	return &cli.Command{
		Name:      "get",
		Category:  categoryTasks,
		Usage:     "show tasks by id",
		ArgsUsage: "QUEUE ID...",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "payload", Usage: "print the payload alone, byte for byte"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "QUEUE", "ID...")
			if err != nil {
				return err
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				return a.each(args[1:], func(id string) error {
					t, err := client.Get(ctx, args[0], id)
					if err != nil {
						return err
					}
					switch {
					case c.Bool("payload"):
						_, err = a.stdout.Write(t.Payload)
					case c.Bool("json"):
						err = printJSON(a.stdout, toJSON(t, true))
					default:
						var attempts int
						if attempts, err = attemptsOf(ctx, client, t); err == nil {
							err = a.printTask(t, attempts)
						}
					}
					return err
				})
			})
		},
	}
}

// each does something for every id. Where one fails, the others are done
// nevertheless, and the exit status is that of a failure. Input errors end it:
// the rest of the line may be as wrong.
func (a *app) each(ids []string, do func(id string) error) error {
	failed := false
	for _, id := range ids {
		err := do(id)
		if errors.Is(err, duetime.ErrNotFound) || errors.Is(err, duetime.ErrRunning) {
			if len(ids) == 1 {
				return err
			}
			failed = true
			fmt.Fprintln(a.stderr, err)
		} else if err != nil {
			return err
		}
	}
	if failed {
		return errReported
	}
	return nil
}

// attemptsOf is which try a task is in or which comes next, and of a dead one how
// many there were.
func attemptsOf(ctx context.Context, client *duetime.Client, t *duetime.Task) (int, error) {
	if t.State != duetime.StateDead {
		return t.Attempt, nil
	}
	settings, err := client.Settings(ctx, t.Queue)
	return triesMade(t, settings), err
}

// triesMade is how often a dead task was tried. The try whose handler declared it dead
// is counted neither as a failure nor as a lost lease.
func triesMade(t *duetime.Task, s duetime.Settings) int {
	tries := t.Failures + t.Lost
	if t.Failures < cmp.Or(t.MaxAttempts, s.MaxAttempts) && t.Lost < s.MaxLost {
		tries++
	}
	return tries
}

func (a *app) printTask(t *duetime.Task, attempts int) error {
	now := time.Now()
	rows := [][]string{
		{"queue", t.Queue},
		{"id", t.ID},
		{"state", t.State.String()},
		{"due", fmt.Sprintf("%s (%s)", relative(t.Due, now), local(t.Due))},
		{"scheduled", fmt.Sprintf("%s (%s)", relative(t.Created, now), local(t.Created))},
	}
	add := func(name, value string) { rows = append(rows, []string{name, value}) }
	if t.State == duetime.StateLeased {
		add("worker", t.Worker)
		add("lease ends", fmt.Sprintf("%s (%s)", relative(t.LeaseUntil, now), local(t.LeaseUntil)))
	}
	if t.State == duetime.StateDead {
		add("attempts", strconv.Itoa(attempts))
	} else {
		add("attempt", strconv.Itoa(attempts))
	}
	if t.Failures > 0 || t.Lost > 0 {
		add("so far", fmt.Sprintf("%s, %s lost", count(int64(t.Failures), "failure"), count(int64(t.Lost), "lease")))
	}
	if t.MaxAttempts > 0 {
		add("max attempts", strconv.Itoa(t.MaxAttempts))
	}
	if t.LastError != "" {
		add("last error", preview(t.LastError, 1000))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		add("header "+name, t.Headers[name])
	}
	add("payload", preview(string(t.Payload), 1000))
	return table(a.stdout, rows)
}

func (a *app) cancelCommand() *cli.Command {
	return &cli.Command{
		Name:        "cancel",
		Category:    categoryTasks,
		Usage:       "cancel tasks: they will never run",
		ArgsUsage:   "QUEUE ID...",
		Description: "A task that is running is not cancelled, and the exit status is 1, unless --force is given:\nthen its worker loses its lease, and it does not run again.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "cancel running tasks too"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "QUEUE", "ID...")
			if err != nil {
				return err
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				cancel := client.Cancel
				if c.Bool("force") {
					cancel = client.CancelRunning
				}
				return a.each(args[1:], func(id string) error {
					if err := cancel(ctx, args[0], id); err != nil {
						return err
					}
					return a.printDone(c, "cancelled", args[0], id, time.Time{})
				})
			})
		},
	}
}

func (a *app) rescheduleCommand() *cli.Command {
	return &cli.Command{
		Name:      "reschedule",
		Category:  categoryTasks,
		Usage:     "give a task another time, earlier or later",
		ArgsUsage: "QUEUE ID",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "in", Usage: "due after so long from now: 30m, 1h30m, PT30M"},
			&cli.StringFlag{Name: "at", Usage: atUsage},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "QUEUE", "ID")
			if err != nil {
				return err
			}
			if !c.IsSet("in") && !c.IsSet("at") {
				return usagef("say when: --in 30m or --at 2030-01-31T07:00:00Z")
			}
			delay, due, err := dueFlags(c)
			if err != nil {
				return err
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				if c.IsSet("in") {
					due, err = client.Reschedule(ctx, args[0], args[1], delay)
				} else {
					due, err = client.RescheduleAt(ctx, args[0], args[1], due)
				}
				if err != nil {
					return err
				}
				return a.printDone(c, "rescheduled", args[0], args[1], due)
			})
		},
	}
}

// printDone says what was done with a task.
func (a *app) printDone(c *cli.Command, outcome, queue, id string, due time.Time) error {
	if c.Bool("json") {
		return printJSON(a.stdout, struct {
			Outcome string `json:"outcome"`
			Queue   string `json:"queue"`
			ID      string `json:"id"`
			DueAt   string `json:"due_at,omitempty"`
		}{outcome, queue, id, utc(due)})
	}
	line := fmt.Sprintf("%s %s %s", outcome, queue, id)
	if !due.IsZero() {
		line += fmt.Sprintf(", due %s (%s)", relative(due, time.Now()), local(due))
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

func (a *app) listCommand() *cli.Command {
	return &cli.Command{
		Name:        "list",
		Category:    categoryTasks,
		Usage:       "list a queue's tasks, by state and due time",
		ArgsUsage:   "QUEUE",
		Description: "With --json, one task a line. Tasks that change while they are listed may be missing or come twice.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "state", Usage: "only scheduled, ready, leased or dead ones"},
			&cli.IntFlag{Name: "limit", Value: 50, Usage: "how many tasks at most; 0: all"},
			&cli.BoolFlag{Name: "payload", Usage: "with payloads and headers"},
		},
		Action: a.list,
	}
}

func (a *app) list(ctx context.Context, c *cli.Command) error {
	args, err := arguments(c, "QUEUE")
	if err != nil {
		return err
	}
	limit := c.Int("limit")
	if limit < 0 {
		return store.NewInputError("--limit", limit, "must be 0 (all) or more")
	}
	states := store.States()
	if c.IsSet("state") {
		state, err := store.ParseState(c.String("state"))
		if err != nil {
			return err
		}
		states = []store.State{state}
	}
	return a.withClient(ctx, c, func(client *duetime.Client) error {
		settings, err := client.Settings(ctx, args[0])
		if err != nil {
			return err
		}
		lines := &listing{app: a, json: c.Bool("json"), payloads: c.Bool("payload"), settings: settings}
		for _, state := range states {
			opts := &duetime.ListOptions{Limit: store.MaxList, Payloads: lines.payloads}
			if limit > 0 {
				// One more than is shown, to know whether there is more.
				opts.Limit = min(limit-lines.n+1, store.MaxList)
			}
			for t, err := range client.Tasks(ctx, args[0], state, opts) {
				if err != nil {
					return err
				}
				if limit > 0 && lines.n == limit {
					fmt.Fprintf(a.stderr, "there are more than these %d: see --limit\n", limit)
					return lines.flush()
				}
				if err := lines.add(t); err != nil {
					return err
				}
			}
		}
		return lines.flush()
	})
}

// listing prints tasks: JSON at once, tables in parts, since columns need to
// know what comes, and a queue may hold more than the memory.
type listing struct {
	*app
	json, payloads bool
	settings       duetime.Settings
	n              int
	rows           [][]string
}

func (l *listing) add(t *duetime.Task) error {
	l.n++
	if l.json {
		return printJSON(l.stdout, toJSON(t, l.payloads))
	}
	if len(l.rows) == 0 {
		heading := []string{"ID", "STATE", "DUE", "ATTEMPT", "LAST ERROR"}
		if l.payloads {
			heading = append(heading, "PAYLOAD")
		}
		l.rows = append(l.rows, heading)
	}
	lastError := "-"
	if t.LastError != "" {
		lastError = preview(t.LastError, 40)
	}
	attempt := t.Attempt
	if t.State == duetime.StateDead {
		attempt = triesMade(t, l.settings)
	}
	row := []string{t.ID, t.State.String(), relative(t.Due, time.Now()), strconv.Itoa(attempt), lastError}
	if l.payloads {
		row = append(row, preview(string(t.Payload), 40))
	}
	l.rows = append(l.rows, row)
	if len(l.rows) > 1000 {
		return l.flush()
	}
	return nil
}

func (l *listing) flush() error {
	rows := l.rows
	l.rows = nil
	if l.n == 0 && !l.json {
		fmt.Fprintln(l.stderr, "no tasks")
	}
	return table(l.stdout, rows)
}
