package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// queueJSON is a queue as the HTTP API shows it.
type queueJSON struct {
	Queue  string `json:"queue"`
	Counts struct {
		Scheduled int64 `json:"scheduled"`
		Ready     int64 `json:"ready"`
		Leased    int64 `json:"leased"`
		Dead      int64 `json:"dead"`
	} `json:"counts"`
	OldestDue string       `json:"oldest_due,omitempty"`
	NextDue   string       `json:"next_due,omitempty"`
	Settings  settingsJSON `json:"settings"`
}

func queueToJSON(queue string, stats duetime.Stats, settings duetime.Settings) queueJSON {
	j := queueJSON{Queue: queue, OldestDue: utc(stats.OldestDue), NextDue: utc(stats.NextDue), Settings: settingsToJSON(settings)}
	j.Counts.Scheduled, j.Counts.Ready, j.Counts.Leased, j.Counts.Dead = stats.Scheduled, stats.Ready, stats.Leased, stats.Dead
	return j
}

func statsOf(ctx context.Context, client *duetime.Client, queue string) (duetime.Stats, duetime.Settings, error) {
	stats, err := client.Stats(ctx, queue)
	if err != nil {
		return duetime.Stats{}, duetime.Settings{}, err
	}
	settings, err := client.Settings(ctx, queue)
	return stats, settings, err
}

func (a *app) queuesCommand() *cli.Command {
	return &cli.Command{
		Name:     "queues",
		Category: categoryQueues,
		Usage:    "list all queues and how many tasks they have",
		Action: func(ctx context.Context, c *cli.Command) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				names, err := client.Queues(ctx)
				if err != nil {
					return err
				}
				if len(names) == 0 && !c.Bool("json") {
					fmt.Fprintln(a.stderr, "no queues")
					return nil
				}
				rows := [][]string{{"QUEUE", "READY", "SCHEDULED", "LEASED", "DEAD", "OLDEST DUE", "NEXT DUE", "HELD BACK"}}
				for _, name := range names {
					stats, settings, err := statsOf(ctx, client, name)
					if err != nil {
						return err
					}
					if c.Bool("json") {
						if err := printJSON(a.stdout, queueToJSON(name, stats, settings)); err != nil {
							return err
						}
						continue
					}
					now := time.Now()
					held := "-"
					last, next, err := releases(settings, now)
					switch {
					case err != nil:
						return err
					case settings.Paused:
						held = "paused"
					case stats.OldestDue.After(last):
						held = "released " + relative(next, now)
					}
					rows = append(rows, []string{
						name, number(stats.Ready), number(stats.Scheduled), number(stats.Leased), number(stats.Dead),
						relative(stats.OldestDue, now), relative(stats.NextDue, now), held,
					})
				}
				if c.Bool("json") {
					return nil
				}
				return table(a.stdout, rows)
			})
		},
	}
}

// releases returns the last instant at which the queue's release setting let due
// tasks out, which holds back those that were due after it, and the next one.
func releases(s duetime.Settings, now time.Time) (last, next time.Time, err error) {
	schedule, err := release.Parse(s.Release)
	if err != nil {
		return last, next, err
	}
	return schedule.Last(now), schedule.Next(now), nil
}

// heldRow says which ready tasks the release setting holds back, and until when.
func heldRow(stats duetime.Stats, s duetime.Settings, now time.Time) ([][]string, error) {
	if stats.Ready == 0 || s.Release == store.ReleaseImmediate {
		return nil, nil
	}
	last, next, err := releases(s, now)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("until %s, %s (release %s)", local(next), relative(next, now), s.Release)
	if !stats.OldestDue.After(last) {
		text = fmt.Sprintf("what was due after %s, %s", local(last), text)
	}
	return [][]string{{"held", text}}, nil
}

// noteUnknown says so if there is no such queue: its name may be a mistake.
func (a *app) noteUnknown(ctx context.Context, client *duetime.Client, queue string) error {
	names, err := client.Queues(ctx)
	if err == nil && !slices.Contains(names, queue) {
		fmt.Fprintf(a.stderr, "no such queue yet: %s\n", queue)
	}
	return err
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func (a *app) statsCommand() *cli.Command {
	return &cli.Command{
		Name:      "stats",
		Category:  categoryQueues,
		Usage:     "show a queue: how many tasks in which state, the oldest, the next, its settings",
		ArgsUsage: "QUEUE",
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "QUEUE")
			if err != nil {
				return err
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				stats, settings, err := statsOf(ctx, client, args[0])
				if err != nil {
					return err
				}
				if stats == (duetime.Stats{}) && settings.Version == 0 {
					if err := a.noteUnknown(ctx, client, args[0]); err != nil {
						return err
					}
				}
				if c.Bool("json") {
					return printJSON(a.stdout, queueToJSON(args[0], stats, settings))
				}
				now := time.Now()
				held, err := heldRow(stats, settings, now)
				if err != nil {
					return err
				}
				at := func(t time.Time) string {
					if t.IsZero() {
						return "-"
					}
					return fmt.Sprintf("%s (%s)", relative(t, now), local(t))
				}
				rows := append([][]string{
					{"queue", args[0]},
					{"ready", number(stats.Ready)},
				}, held...)
				return table(a.stdout, append(append(rows, [][]string{
					{"scheduled", number(stats.Scheduled)},
					{"leased", number(stats.Leased)},
					{"dead", number(stats.Dead)},
					{"oldest due", at(stats.OldestDue)},
					{"next due", at(stats.NextDue)},
				}...), settingsRows(settings)...))
			})
		},
	}
}

func (a *app) pauseCommand() *cli.Command {
	return a.pauseOrResume("pause", "paused", "hand out no more of a queue's tasks, until resume; running ones go on", true)
}

func (a *app) resumeCommand() *cli.Command {
	return a.pauseOrResume("resume", "resumed", "end a pause", false)
}

func (a *app) pauseOrResume(name, done, usage string, paused bool) *cli.Command {
	return &cli.Command{
		Name:      name,
		Category:  categoryQueues,
		Usage:     usage,
		ArgsUsage: "QUEUE",
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "QUEUE")
			if err != nil {
				return err
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				do := client.Resume
				if paused {
					do = client.Pause
				}
				if err := do(ctx, args[0]); err != nil {
					return err
				}
				if c.Bool("json") {
					return printJSON(a.stdout, map[string]any{"queue": args[0], "paused": paused})
				}
				_, err := fmt.Fprintln(a.stdout, done, args[0])
				return err
			})
		},
	}
}

func (a *app) redriveCommand() *cli.Command {
	return &cli.Command{
		Name:        "redrive",
		Category:    categoryQueues,
		Usage:       "bring dead tasks back: due now, with all their attempts",
		ArgsUsage:   "QUEUE (ID... | --all)",
		Description: "Where one of the ids is not that of a dead task, the others are brought back and the exit status is 1.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "all dead tasks of the queue"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "QUEUE", "ID...?")
			if err != nil {
				return err
			}
			if c.Bool("all") == (len(args) > 1) {
				return usagef("give either ids or --all; see %s --help", c.FullName())
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				var n int
				var err error
				var not []string
				ids := slices.Compact(slices.Sorted(slices.Values(args[1:])))
				if c.Bool("all") {
					n, err = client.RedriveAll(ctx, args[0])
				} else {
					n, not, err = redriveEach(ctx, client, args[0], ids)
				}
				if err != nil {
					return fmt.Errorf("%w (after %s)", err, count(int64(n), "task"))
				}
				if c.Bool("all") || n >= len(ids) {
					return a.printCount(c, "redriven", args[0], n)
				}
				if n > 0 {
					if err := a.printCount(c, "redriven", args[0], n); err != nil {
						return err
					}
				}
				return notRedriven(not, len(ids), n)
			})
		},
	}
}

// redriveEach brings tasks back, and says which were not dead; of very many it does
// not.
func redriveEach(ctx context.Context, client *duetime.Client, queue string, ids []string) (n int, not []string, err error) {
	if len(ids) > 100 { // in few calls
		n, err = client.Redrive(ctx, queue, ids)
		return n, nil, err
	}
	for _, id := range ids {
		moved, err := client.Redrive(ctx, queue, []string{id})
		n += moved
		if err != nil {
			return n, not, err
		}
		if moved == 0 {
			not = append(not, preview(id, 60))
		}
	}
	return n, not, nil
}

func notRedriven(not []string, ids, n int) error {
	names := ""
	if len(not) > 0 {
		names = ": " + strings.Join(not[:min(len(not), 10)], ", ")
		if len(not) > 10 {
			names += " and others"
		}
	}
	return fmt.Errorf("%d of %s not dead, or not there%s", ids-n, plural(int64(ids), "1 task is", "%d tasks are"), names)
}

func (a *app) purgeCommand() *cli.Command {
	return &cli.Command{
		Name:        "purge",
		Category:    categoryQueues,
		Usage:       "remove all of a queue's tasks that are in one state, for ever",
		ArgsUsage:   "QUEUE (--state STATE | --all)",
		Description: "There is no way back. Receipts of leased tasks become stale: their workers' acknowledgements change nothing.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "state", Usage: "scheduled, ready, leased or dead"},
			&cli.BoolFlag{Name: "all", Usage: "in all states"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "QUEUE")
			if err != nil {
				return err
			}
			if c.Bool("all") == c.IsSet("state") {
				return usagef("say which tasks: --state dead, another state, or --all")
			}
			// Scheduled before ready: a task that becomes due in between is
			// then still found.
			states := []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead}
			if c.IsSet("state") {
				state, err := store.ParseState(c.String("state"))
				if err != nil {
					return err
				}
				states = []store.State{state}
			}
			return a.withClient(ctx, c, func(client *duetime.Client) error {
				total := 0
				for _, state := range states {
					n, err := client.Purge(ctx, args[0], state)
					total += n
					if err != nil {
						return fmt.Errorf("%w (after %s)", err, count(int64(total), "task"))
					}
				}
				return a.printCount(c, "purged", args[0], total)
			})
		},
	}
}

func (a *app) printCount(c *cli.Command, done, queue string, n int) error {
	if c.Bool("json") {
		return printJSON(a.stdout, map[string]any{"queue": queue, done: n})
	}
	_, err := fmt.Fprintf(a.stdout, "%s %s of %s\n", done, count(int64(n), "task"), queue)
	return err
}
