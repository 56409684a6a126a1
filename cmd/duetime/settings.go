package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

// setting is one setting that can be changed by name=value.
type setting struct {
	name string
	get  func(duetime.Settings) string
	set  func(*duetime.Settings, string) error
}

var settingsByName = []setting{
	boolSetting("paused", func(s *duetime.Settings) *bool { return &s.Paused }),
	intSetting("max_attempts", func(s *duetime.Settings) *int { return &s.MaxAttempts }),
	intSetting("max_lost", func(s *duetime.Settings) *int { return &s.MaxLost }),
	durationSetting("lease", func(s *duetime.Settings) *time.Duration { return &s.Lease }),
	{
		name: "release",
		get:  func(s duetime.Settings) string { return s.Release },
		set:  func(s *duetime.Settings, text string) error { s.Release = text; return nil },
	},
	durationSetting("backoff.initial", func(s *duetime.Settings) *time.Duration { return &s.Backoff.Initial }),
	durationSetting("backoff.max", func(s *duetime.Settings) *time.Duration { return &s.Backoff.Max }),
	floatSetting("backoff.factor", func(s *duetime.Settings) *float64 { return &s.Backoff.Factor }),
	floatSetting("backoff.jitter", func(s *duetime.Settings) *float64 { return &s.Backoff.Jitter }),
}

func boolSetting(name string, field func(*duetime.Settings) *bool) setting {
	return setting{
		name: name,
		get:  func(s duetime.Settings) string { return strconv.FormatBool(*field(&s)) },
		set: func(s *duetime.Settings, text string) error {
			switch text {
			case "true":
				*field(s) = true
			case "false":
				*field(s) = false
			default:
				return store.NewInputError("settings."+name, text, "must be true or false")
			}
			return nil
		},
	}
}

func intSetting(name string, field func(*duetime.Settings) *int) setting {
	return setting{
		name: name,
		get:  func(s duetime.Settings) string { return strconv.Itoa(*field(&s)) },
		set: func(s *duetime.Settings, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil {
				return store.NewInputError("settings."+name, text, "must be a whole number, 1 to %d", store.MaxAttemptLimit)
			}
			*field(s) = n
			return nil
		},
	}
}

func floatSetting(name string, field func(*duetime.Settings) *float64) setting {
	return setting{
		name: name,
		get:  func(s duetime.Settings) string { return strconv.FormatFloat(*field(&s), 'g', -1, 64) },
		set: func(s *duetime.Settings, text string) error {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return store.NewInputError("settings."+name, text, "must be a number")
			}
			*field(s) = x
			return nil
		},
	}
}

func durationSetting(name string, field func(*duetime.Settings) *time.Duration) setting {
	return setting{
		name: name,
		get:  func(s duetime.Settings) string { return shortDuration(*field(&s)) },
		set: func(s *duetime.Settings, text string) error {
			d, err := timetext.Duration("settings."+name, text)
			if err != nil {
				return err
			}
			*field(s) = d
			return nil
		},
	}
}

func settingsRows(s duetime.Settings) [][]string {
	var rows [][]string
	for _, x := range settingsByName {
		rows = append(rows, []string{x.name, x.get(s)})
	}
	return rows
}

func (a *app) settingsCommand() *cli.Command {
	return &cli.Command{
		Name:      "settings",
		Category:  categoryQueues,
		Usage:     "show a queue's settings, or change them while everything runs",
		ArgsUsage: "QUEUE [NAME=VALUE...]",
		Description: "All who use the store obey a change within a second. NAME=default, or NAME= alone, takes a change back.\n\n" +
			"  paused           true: nothing is handed out\n" +
			"  max_attempts     failures, then dead; a task may have its own\n" +
			"  max_lost         leases that ran out, then dead\n" +
			"  lease            of workers that do not say: 30s\n" +
			"  release          when due tasks are let out: immediate, \"every 5s\", or a cron expression\n" +
			"                   such as \"CRON_TZ=Asia/Shanghai 0 0 7 * * *\" (the first field is seconds)\n" +
			"  backoff.initial  the wait after the first failure\n" +
			"  backoff.max      the longest wait\n" +
			"  backoff.factor   by what each wait is longer than the one before\n" +
			"  backoff.jitter   the random part of a wait, 0 to 1",
		Action: a.settings,
	}
}

func (a *app) settings(ctx context.Context, c *cli.Command) error {
	args, err := arguments(c, "QUEUE", "NAME=VALUE...?")
	if err != nil {
		return err
	}
	var changes []func(*duetime.Settings) error
	seen := make(map[string]bool)
	for _, arg := range args[1:] {
		name, _, _ := strings.Cut(arg, "=")
		if seen[name] {
			return usagef("the setting %s is given twice", name)
		}
		seen[name] = true
		change, err := parseSetting(arg)
		if err != nil {
			return err
		}
		changes = append(changes, change)
	}
	// Tried on the defaults first, so that a mistake is found before anything is
	// asked of the store.
	trial := store.DefaultSettings()
	for _, change := range changes {
		if err := change(&trial); err != nil {
			return err
		}
	}
	return a.withClient(ctx, c, func(client *duetime.Client) error {
		var settings duetime.Settings
		if len(changes) == 0 {
			if settings, err = client.Settings(ctx, args[0]); err == nil && settings.Version == 0 {
				err = a.noteUnknown(ctx, client, args[0])
			}
		} else {
			settings, err = client.UpdateSettings(ctx, args[0], func(s *duetime.Settings) {
				for _, change := range changes {
					_ = change(s) // it has been tried above
				}
			})
		}
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(a.stdout, settingsToJSON(settings))
		}
		return table(a.stdout, settingsRows(settings))
	})
}

func parseSetting(arg string) (func(*duetime.Settings) error, error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return nil, usagef("%q is no setting: write NAME=VALUE, such as lease=1m", arg)
	}
	i := slices.IndexFunc(settingsByName, func(s setting) bool { return s.name == name })
	if i < 0 {
		var names []string
		for _, s := range settingsByName {
			names = append(names, s.name)
		}
		return nil, usagef("there is no setting %q; there are %s", name, strings.Join(names, ", "))
	}
	if value == "" || value == "default" {
		value = settingsByName[i].get(store.DefaultSettings())
	}
	return func(s *duetime.Settings) error { return settingsByName[i].set(s, value) }, nil
}
