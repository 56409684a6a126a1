package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/mysqlsource"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

func (a *app) importMySQLCommand() *cli.Command {
	return &cli.Command{
		Name:      "mysql",
		Usage:     "take over rows of a table of MySQL or MariaDB",
		ArgsUsage: "URL",
		Description: "URL is mysql://USER:PASSWORD@HOST:PORT/DATABASE, where the table is. The tasks go to --store.\n\n" +
			"Each row becomes a task, once, also where this command is killed: the same command then goes on.\n" +
			"The rows stay as they are, and which were copied is noted in a table beside theirs, duetime_import_\n" +
			"and its name, so stop the old consumers first. With --set or --delete each row is taken from them in the\n" +
			"transaction that notes it, so that they may be at work meanwhile. A row that is changed or gone by\n" +
			"then is not copied as it was.\n\n" +
			"Exit status 1 where some rows can not become tasks, which are named.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "table", Usage: "the `TABLE` (required)"},
			&cli.StringFlag{Name: "id-column", Usage: "the `COLUMN` of the tasks' ids, under a unique index of its own (required)"},
			&cli.StringFlag{Name: "due-column", Usage: "the `COLUMN` that says when a task is due: DATETIME, TIMESTAMP, DATE or a number (required)"},
			&cli.StringFlag{Name: "payload-column", Usage: "the `COLUMN` of the payloads (default: the id is the payload too)"},
			&cli.StringFlag{Name: "queue", Usage: "the `QUEUE` that the tasks go to (required)"},
			&cli.StringFlag{Name: "where", Usage: "which rows, as `SQL`: \"status = 'unpaid'\" (default: all)"},
			&cli.StringFlag{Name: "unit", Usage: "what a due column of numbers counts since 1970: s, ms, us or ns"},
			&cli.StringFlag{Name: "zone", Usage: "the time `ZONE` of a DATETIME or DATE: UTC, Asia/Shanghai, +08:00"},
			&cli.StringFlag{Name: "delay", Usage: "how much later than --due-column says a task is due, such as 30m, where that is when the row was made"},
			&cli.StringFlag{Name: "set", Usage: "change each row that goes over, as `SQL`: \"status = 'queued'\", after which --where must not match"},
			&cli.BoolFlag{Name: "delete", Usage: "delete each row that goes over"},
			&cli.BoolFlag{Name: "follow", Usage: "go on with what the old producers write, until Ctrl-C"},
			&cli.StringFlag{Name: "on-conflict", Usage: "where the id of a row is in use: keep, the row stays where it is; replace, it takes the task's place (default: keep; with --follow: replace)"},
		},
		Action: a.importMySQL,
	}
}

// importMySQLFlags reads all but where to connect to.
func importMySQLFlags(c *cli.Command) (o mysqlsource.Options, t takeover.Options, err error) {
	o = mysqlsource.Options{
		Table: c.String("table"), IDColumn: c.String("id-column"), DueColumn: c.String("due-column"), PayloadColumn: c.String("payload-column"),
		Where: c.String("where"), Set: c.String("set"), Delete: c.Bool("delete"), Unit: takeover.Unit(c.String("unit")), Queue: c.String("queue"),
	}
	t = takeover.Options{Queue: o.Queue, Follow: c.Bool("follow"), Replace: c.Bool("follow")}
	for _, name := range []string{"table", "id-column", "due-column", "queue"} {
		if c.String(name) == "" {
			return o, t, usagef("%s needs --%s; see %s --help", c.FullName(), name, c.FullName())
		}
	}
	if err := store.CheckQueue(o.Queue); err != nil {
		return o, t, err
	}
	if o.Unit != "" && !o.Unit.Known() {
		return o, t, store.NewInputError("--unit", string(o.Unit), "must be s, ms, us or ns")
	}
	if c.IsSet("zone") {
		if o.Zone, err = mysqlsource.ParseZone(c.String("zone")); err != nil {
			return o, t, err
		}
	}
	if c.IsSet("delay") {
		if o.Delay, err = timetext.Duration("--delay", c.String("delay")); err != nil {
			return o, t, err
		}
		if o.Delay < 0 {
			return o, t, store.NewInputError("--delay", o.Delay, "must be 0 or more")
		}
		o.Created = true
	}
	if o.Set != "" && o.Delete {
		return o, t, usagef("--set and --delete do not go together")
	}
	if o.Set != "" && o.Where == "" {
		return o, t, usagef("--set needs --where, which must not match what --set has changed: --where \"status = 'unpaid'\" --set \"status = 'queued'\"")
	}
	return o, t, conflictFlag(c, &t)
}

func (a *app) importMySQL(ctx context.Context, c *cli.Command) error {
	args, err := arguments(c, "URL")
	if err != nil {
		return err
	}
	source, opts, err := importMySQLFlags(c)
	if err != nil {
		return err
	}
	from := importFrom{
		name: source.Table, one: "1 row", many: "%d rows", done: "moved", stays: "stays in", stay: "1 row stays", allStay: "%d rows stay",
		tail: "now point producers to duetime, and let those who cancel do it there; the same command moves what comes to " + source.Table + " until then",
	}
	if !source.Delete && source.Set == "" {
		from.done, from.stays, from.stay, from.allStay = "copied", "not copied from", "1 row is not copied", "%d rows are not copied"
		from.tail = "what was copied is noted in the table " + mysqlsource.StateTable(source.Table) + ", so that it is not copied again: drop that when you need it no more"
	}
	source.Waiting = func(connection int64) {
		a.note("another import from %s is at work (connection %d of the server): waiting", source.Table, connection)
	}
	var src *mysqlsource.Source
	defer func() {
		if src != nil {
			_ = src.Close()
		}
	}()
	return a.importInto(ctx, c, from, opts, func(to string, maxPayload int) (takeover.Source, error) {
		source.To, source.MaxPayload = to, maxPayload
		var err error
		if src, err = mysqlsource.Open(ctx, args[0], source); err != nil {
			return nil, fmt.Errorf("mysql at %s: %w", storeurl.Shown(args[0]), err)
		}
		return src, nil
	})
}
