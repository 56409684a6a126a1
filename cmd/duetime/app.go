package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
)

// app is one run of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

const (
	categoryTasks  = "tasks"
	categoryQueues = "queues"
	categoryRun    = "running"
)

func (a *app) command() *cli.Command {
	root := &cli.Command{
		Name:  "duetime",
		Usage: "tasks that run once, on time, and are never lost",
		Description: "Start a server in one terminal:      duetime serve\n" +
			"watch a queue in a second:           duetime work orders\n" +
			"and schedule a task from a third:    duetime schedule orders --in 5s '{\"order\": 42}'\n\n" +
			"Durations are written 30m, 1h30m, 250ms or PT30M, never without a unit.\n" +
			"Exit status: 0 done, 1 failed, 2 wrong usage.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "store", Sources: cli.EnvVars("DUETIME_STORE"),
				Usage: "the store to use: " + storeForms + " (default: serve uses the embedded store in the user's data directory, demo one of its own, all others " + defaultServer + ")",
			},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, one value a line, instead of text for people"},
			&cli.BoolFlag{Name: "version", Local: true, Usage: "print the version"},
		},
		HideVersion:           true,
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden = false
			c.Usage = "print the completion script of a shell: bash, zsh, fish or pwsh"
			a.completeWithoutPackage(c.Command("bash"))
		},
		Commands: []*cli.Command{
			a.scheduleCommand(), a.getCommand(), a.listCommand(), a.rescheduleCommand(), a.cancelCommand(),
			a.queuesCommand(), a.statsCommand(), a.settingsCommand(), a.pauseCommand(), a.resumeCommand(),
			a.redriveCommand(), a.purgeCommand(),
			a.serveCommand(), a.workCommand(), a.demoCommand(), a.benchCommand(),
			a.migrateCommand(), a.importCommand(), a.reshardCommand(),
			a.versionCommand(),
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Bool("version") {
				return a.printVersion(c)
			}
			if c.Args().Present() {
				return a.unknownCommand(c)
			}
			return cli.ShowRootCommandHelp(c)
		},
		Writer:    a.stdout,
		ErrWriter: a.stderr,
		// run decides on the exit status, and prints errors.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   onUsageError,
	}
	for _, c := range root.Commands {
		c.OnUsageError = onUsageError
		// So that a queue may have the name help.
		c.HideHelpCommand = true
	}
	return root
}

// completeWithoutPackage mends the library's script, which asks for functions of the
// package bash-completion, for machines without it.
func (a *app) completeWithoutPackage(bash *cli.Command) {
	script := bash.Action
	bash.Action = func(ctx context.Context, c *cli.Command) error {
		if err := script(ctx, c); err != nil {
			return err
		}
		_, err := fmt.Fprint(a.stdout, `
# Without the package bash-completion, what bash itself says has to do.
if ! declare -F _comp_initialize >/dev/null && ! declare -F _get_comp_words_by_ref >/dev/null; then
  __duetime_init_completion() { COMPREPLY=(); }
fi
`)
		return err
	}
}

func (a *app) unknownCommand(c *cli.Command) error {
	name := c.Args().First()
	hint := "duetime --help lists them"
	if near := cli.SuggestCommand(c.Commands, name); near != "" && near[0] == name[0] {
		hint = fmt.Sprintf("did you mean %s? %s", near, hint)
	}
	return usagef("there is no command %q; %s", name, hint)
}

// invalidValue is how the library speaks of numbers and booleans that are none.
var invalidValue = regexp.MustCompile(`^invalid value (".*") for flag -(\S+): `)

// onUsageError says what is wrong with flags in one line.
func onUsageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	problem := err.Error()
	if flag, ok := strings.CutPrefix(problem, "flag provided but not defined: -"); ok {
		dashes := "--"
		if len([]rune(flag)) == 1 {
			dashes = "-"
		}
		problem = fmt.Sprintf("there is no flag %s%s (a payload or id that begins with - goes after --)", dashes, flag)
	}
	if flag, ok := strings.CutPrefix(problem, "flag needs an argument: "); ok {
		problem = fmt.Sprintf("flag %s needs a value", flag)
	}
	if m := invalidValue.FindStringSubmatch(problem); m != nil {
		problem = fmt.Sprintf("flag --%s %s: is not a value for it, such as a whole number", m[2], m[1])
	}
	return usagef("%s; see %s --help", problem, c.FullName())
}

// arguments returns the positional arguments, of which there must be as many as
// there are names, but that a last name may end in "?" (may be missing), "..."
// (one or more) or "...?" (any number).
func arguments(c *cli.Command, names ...string) ([]string, error) {
	args := c.Args().Slice()
	least, most := len(names), len(names)
	if least > 0 {
		last, optional := strings.CutSuffix(names[least-1], "?")
		if strings.HasSuffix(last, "...") {
			most = -1
		}
		if optional {
			least--
		}
	}
	if len(args) < least {
		return nil, usagef("%s needs %s; see %s --help", c.FullName(), strings.TrimRight(names[len(args)], "?."), c.FullName())
	}
	if most >= 0 && len(args) > most {
		return nil, usagef("%s does not know what to do with the argument %q; see %s --help", c.FullName(), args[most], c.FullName())
	}
	return args, nil
}

// withClient opens the store that the flags name, and closes it after f.
func (a *app) withClient(ctx context.Context, c *cli.Command, f func(*duetime.Client) error) error {
	return a.with(ctx, c, false, nil, f)
}

// with is withClient with hooks, which may be nil, and a choice of patience; see
// openStore.
func (a *app) with(ctx context.Context, c *cli.Command, patient bool, hooks *duetime.Hooks, f func(*duetime.Client) error) error {
	url := c.String("store")
	if url == "" {
		url = defaultServer
	}
	if url == "memory:" {
		return store.NewInputError("store", url, "is gone when this command ends, and no other process sees it: "+
			"run duetime serve --store memory: and leave out --store here, or use embedded:PATH")
	}
	st, err := openStore(ctx, url, patient)
	if err != nil {
		return explain(err, url)
	}
	client := duetime.NewClient(st, &duetime.ClientOptions{Logger: a.logger(), Hooks: hooks})
	err = explain(f(client), url)
	if closeErr := client.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("closing the store: %w", closeErr)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted; the operation may have been carried out or not")
	}
	return err
}

// logger is for what goes on in the background: trouble with the store, tasks that
// fail.
func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
			// The whole of a long error text is kept with its task.
			if attr.Key == "error" {
				return slog.String("error", preview(attr.Value.String(), 300))
			}
			return attr
		},
	}))
}
