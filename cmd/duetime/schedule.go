package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

const atUsage = "when it is due: 2030-01-31T07:00:00+08:00 or ...Z, or 07:00 or 07:00:30 for the next such time of day in the zone of this machine"

func (a *app) scheduleCommand() *cli.Command {
	return &cli.Command{
		Name:      "schedule",
		Category:  categoryTasks,
		Usage:     "schedule a task",
		ArgsUsage: "QUEUE [PAYLOAD | -]",
		Description: "The payload is the argument, byte for byte, or what stands on standard input if the argument is -.\n" +
			"Without --in and --at the task is due now. A task with the id of one that is there changes nothing\n" +
			"(so the command may be repeated), unless --replace is given.\n\n" +
			"  duetime schedule orders --in 30m --id 4711 '{\"total\": 12}'\n" +
			"  duetime schedule news --at 07:00 - < article.html",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "in", Usage: "due after so long, counted by the store's clock: 30m, 1h30m, PT30M"},
			&cli.StringFlag{Name: "at", Usage: atUsage},
			&cli.StringFlag{Name: "id", Usage: "your name for the task, such as an order's number (default: one is made up)"},
			&cli.StringSliceFlag{Name: "header", Usage: "a header that goes with the payload, `NAME=VALUE`; may be repeated"},
			&cli.IntFlag{Name: "max-attempts", HideDefault: true, Usage: "failures after which the task is dead (default: the queue's setting)"},
			&cli.BoolFlag{Name: "replace", Usage: "put it in the place of a task with the same id, even of a running one"},
		},
		// A comma in a header's value is the value's own.
		DisableSliceFlagSeparator: true,
		Action:                    a.schedule,
	}
}

func (a *app) schedule(ctx context.Context, c *cli.Command) error {
	args, err := arguments(c, "QUEUE", "PAYLOAD?")
	if err != nil {
		return err
	}
	queue := args[0]
	task := duetime.NewTask{MaxAttempts: c.Int("max-attempts"), Replace: c.Bool("replace")}
	if task.Delay, task.Due, err = dueFlags(c); err != nil {
		return err
	}
	if task.ID = c.String("id"); c.IsSet("id") {
		// An empty id is a mistake, such as a variable that is not set: no reason
		// to make one up.
		if err := store.CheckID(task.ID); err != nil {
			return err
		}
	}
	if task.Headers, err = headerFlags(c.StringSlice("header")); err != nil {
		return err
	}
	if len(args) > 1 {
		if task.Payload, err = a.payload(args[1]); err != nil {
			return err
		}
	}
	return a.withClient(ctx, c, func(client *duetime.Client) error {
		s, err := client.Schedule(ctx, queue, task)
		if err != nil {
			if s.ID != "" && task.ID == "" {
				return fmt.Errorf("%w (the id made up for it was %s)", err, s.ID)
			}
			return err
		}
		return a.printScheduled(c, queue, &task, &s)
	})
}

// payload is what a payload argument stands for.
func (a *app) payload(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	// No store takes more than a few MiB; a limit keeps an endless input from
	// filling the memory.
	const limit = 256 << 20
	data, err := io.ReadAll(io.LimitReader(a.stdin, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading the payload from standard input: %w", err)
	}
	if len(data) > limit {
		return nil, store.NewInputError("payload", data, "is longer than %d bytes", limit)
	}
	return data, nil
}

// dueFlags reads --in and --at.
func dueFlags(c *cli.Command) (delay time.Duration, due time.Time, err error) {
	switch {
	case c.IsSet("in") && c.IsSet("at"):
		return 0, time.Time{}, usagef("give --in or --at, not both")
	case c.IsSet("in"):
		delay, err = timetext.Duration("--in", c.String("in"))
		if err == nil && delay < 0 {
			err = store.NewInputError("--in", c.String("in"), "is negative, must be 0s or more")
		}
	case c.IsSet("at"):
		due, err = parseAt(c.String("at"), time.Now())
		// Here, since the zero time would be taken for one that was not given.
		if err == nil && due.Before(store.MinTime) {
			err = store.NewInputError("--at", c.String("at"), "is before %s, the earliest due time", store.MinTime.Format(time.RFC3339))
		}
	}
	return delay, due, err
}

// parseAt reads a time with its zone, or a time of day, which means the next
// such time in the zone of this machine.
func parseAt(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at := func(day int) time.Time {
			return time.Date(now.Year(), now.Month(), now.Day()+day, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		}
		if today := at(0); today.After(now) {
			return today, nil
		}
		return at(1), nil
	}
	t, err := timetext.Time("--at", text)
	if input, ok := err.(*store.InputError); ok && strings.Contains(input.Problem, ": write ") {
		return t, &store.InputError{Field: input.Field, Value: input.Value, Problem: input.Problem + ", or a time of day such as 07:00"}
	}
	return t, err
}

func headerFlags(flags []string) (map[string]string, error) {
	if len(flags) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(flags))
	for _, f := range flags {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return nil, store.NewInputError("--header", f, "has no =: write NAME=VALUE")
		}
		if _, twice := headers[name]; twice {
			return nil, store.NewInputError("--header", f, "is the second one with this name")
		}
		headers[name] = value
	}
	return headers, nil
}

func (a *app) printScheduled(c *cli.Command, queue string, task *duetime.NewTask, s *duetime.Scheduled) error {
	if c.Bool("json") {
		shown := duetime.Task{
			Queue: queue, ID: s.ID, Payload: task.Payload, Headers: task.Headers,
			Due: s.Due, MaxAttempts: task.MaxAttempts,
		}
		if s.Existing != nil {
			shown = *s.Existing
		}
		return printJSON(a.stdout, struct {
			Outcome string `json:"outcome"`
			taskJSON
		}{s.Outcome.String(), toJSON(&shown, true)})
	}
	when := fmt.Sprintf("%s (%s)", relative(s.Due, time.Now()), local(s.Due))
	var err error
	switch s.Outcome {
	case duetime.OutcomeExists:
		difference := ""
		if s.Existing != nil && !bytes.Equal(s.Existing.Payload, task.Payload) {
			difference = ", with another payload"
		}
		_, err = fmt.Fprintf(a.stdout, "exists    %s %s, due %s%s; nothing changed\n", queue, s.ID, when, difference)
	case duetime.OutcomeReplaced:
		_, err = fmt.Fprintf(a.stdout, "replaced  %s %s, due %s\n", queue, s.ID, when)
	default:
		_, err = fmt.Fprintf(a.stdout, "scheduled %s %s, due %s\n", queue, s.ID, when)
	}
	return err
}
