package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/redissource"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

func (a *app) importCommand() *cli.Command {
	kinds := []*cli.Command{a.importRedisCommand(), a.importMySQLCommand()}
	for _, k := range kinds {
		k.OnUsageError, k.HideHelpCommand = onUsageError, true
	}
	return &cli.Command{
		Name:      "import",
		Category:  categoryMove,
		Usage:     "take over what a hand-made scheduler holds: import redis, import mysql",
		ArgsUsage: "redis|mysql",
		Commands:  kinds,
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usagef("there is no import from %q; see %s --help", c.Args().First(), c.FullName())
			}
			return usagef("%s needs to be told from where: redis or mysql; see %s --help", c.FullName(), c.FullName())
		},
	}
}

func (a *app) importRedisCommand() *cli.Command {
	return &cli.Command{
		Name:      "redis",
		Usage:     "take over a sorted set of Redis, with or without a hash of payloads",
		ArgsUsage: "URL",
		Description: "URL is redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// with TLS,\n" +
			"redis+cluster://HOST,HOST or redis+sentinel://HOST,HOST/MASTER. The tasks go to --store.\n\n" +
			"The members of the sorted set become the tasks' ids. Each entry moves exactly once, also where\n" +
			"this command is killed, while the old producers and consumers are at work: the same command then\n" +
			"goes on. It ends when nothing is left; with --follow it goes on until Ctrl-C.\n\n" +
			"Whoever cancels must do it in duetime from the start of this command: what has moved is not in\n" +
			"the sorted set any more.\n\n" +
			"Exit status 1 where some entries stay in the sorted set, which are named.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "zset", Usage: "the `KEY` of the sorted set (required)"},
			&cli.StringFlag{Name: "queue", Usage: "the `QUEUE` that the tasks go to (required)"},
			&cli.StringFlag{Name: "unit", Usage: "what scores count: s or ms since 1970 (required)"},
			&cli.StringFlag{Name: "score", Value: "due", Usage: "what a score says: due, when it is due; created, when it was made, with --delay"},
			&cli.StringFlag{Name: "delay", Usage: "with --score created: how much later than that a task is due, such as 30m"},
			&cli.StringFlag{Name: "hash", Usage: "the `KEY` of a hash with the payloads, by member (default: the member is the payload too)"},
			&cli.BoolFlag{Name: "follow", Usage: "go on with what the old producers write, until Ctrl-C"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the source as it is and note what was copied: both systems run the tasks then"},
			&cli.StringFlag{Name: "on-conflict", Usage: "where the id of an entry is in use: keep, the entry stays in the sorted set; replace, it takes the task's place (default: keep; with --follow: replace)"},
		},
		Action: a.importRedis,
	}
}

// importFlags reads all but where to connect to.
func importFlags(c *cli.Command) (redissource.Options, takeover.Options, error) {
	o := redissource.Options{
		ZSet: c.String("zset"), Hash: c.String("hash"), Unit: redissource.Unit(c.String("unit")), Keep: c.Bool("keep"), Queue: c.String("queue"),
	}
	t := takeover.Options{Queue: o.Queue, Follow: c.Bool("follow"), Replace: c.Bool("follow")}
	for _, name := range []string{"zset", "queue", "unit"} {
		if c.String(name) == "" {
			return o, t, usagef("%s needs --%s; see %s --help", c.FullName(), name, c.FullName())
		}
	}
	if err := store.CheckQueue(o.Queue); err != nil {
		return o, t, err
	}
	if o.Unit != redissource.Seconds && o.Unit != redissource.Milliseconds {
		return o, t, store.NewInputError("--unit", string(o.Unit), "must be s or ms: a score of today is %d in s and %d in ms", time.Now().Unix(), time.Now().UnixMilli())
	}
	switch score := c.String("score"); score {
	case "due":
		if c.IsSet("delay") {
			return o, t, usagef("--delay goes with --score created: a score that says when a task is due needs none")
		}
	case "created":
		if !c.IsSet("delay") {
			return o, t, usagef("--score created needs --delay: how much later is a task due?")
		}
		delay, err := timetext.Duration("--delay", c.String("delay"))
		if err != nil {
			return o, t, err
		}
		if delay < 0 {
			return o, t, store.NewInputError("--delay", delay, "must be 0 or more")
		}
		o.Created, o.Delay = true, delay
	default:
		return o, t, store.NewInputError("--score", score, "must be due or created")
	}
	if err := conflictFlag(c, &t); err != nil {
		return o, t, err
	}
	if o.Keep && t.Follow {
		return o, t, usagef("--keep and --follow do not go together: a source that keeps everything has to be read whole each time")
	}
	if o.Hash == o.ZSet {
		return o, t, store.NewInputError("--hash", o.Hash, "is the sorted set's key too")
	}
	return o, t, nil
}

// conflictFlag reads --on-conflict, which is the same from everywhere.
func conflictFlag(c *cli.Command, t *takeover.Options) error {
	switch conflict := c.String("on-conflict"); conflict {
	case "":
	case "keep", "replace":
		t.Replace = conflict == "replace"
	default:
		return store.NewInputError("--on-conflict", conflict, "must be keep or replace")
	}
	return nil
}

func (a *app) importRedis(ctx context.Context, c *cli.Command) error {
	args, err := arguments(c, "URL")
	if err != nil {
		return err
	}
	source, opts, err := importFlags(c)
	if err != nil {
		return err
	}
	client, err := redissource.Dial(args[0])
	if err != nil {
		return fmt.Errorf("redis at %s: %w", storeurl.Shown(args[0]), err)
	}
	defer client.Close()
	from := importFrom{name: source.ZSet, one: "1 entry", many: "%d entries", done: "moved", stays: "stays in", stay: "1 entry stays", allStay: "%d entries stay"}
	from.tail = "now point producers to duetime, and let those who cancel do it there; the same command moves what comes to " + source.ZSet + " until then"
	if source.Keep {
		from.done = "copied"
		from.tail = "what was copied is noted in " + redissource.ImportedKey(source.ZSet) + ", so that it is not copied again: delete that key when you need it no more"
	}
	source.Waiting = func() {
		a.note("another import from %s is at work, or was killed less than 15 s ago: waiting for its lock", source.ZSet)
	}
	return a.importInto(ctx, c, from, opts, func(to string, maxPayload int) (takeover.Source, error) {
		source.To, source.MaxPayload = to, maxPayload
		return redissource.New(client, source)
	})
}

// note tells people of something while a command is at work.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "duetime: "+format+"\n", args...)
}

// importFrom is how messages speak of where entries come from.
type importFrom struct {
	name          string
	one, many     string // "1 entry", "%d entries"
	done          string // "moved"
	stays         string // "stays in"
	stay, allStay string // "1 entry stays", "%d entries stay"
	tail          string // what to do next
}

// importInto opens the store and takes over what the source has.
func (a *app) importInto(ctx context.Context, c *cli.Command, from importFrom, opts takeover.Options, open func(to string, maxPayload int) (takeover.Source, error)) (err error) {
	url := c.String("store")
	if url == "" {
		url = defaultServer
	}
	dest, err := openToMove(ctx, url)
	if err != nil {
		return explain(err, url)
	}
	defer func() {
		if closeErr := dest.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("closing the store: %w", closeErr)
		}
	}()
	src, err := open(storeName(url), dest.Capabilities().MaxPayload)
	if err != nil {
		return err
	}
	bar := newProgress(a.stderr)
	opts.Progress = func(done, total int64) { bar.show(done, total, from.name) }
	opts.Stays = func(l takeover.Left) {
		bar.clear()
		a.note("%s %s: %s: %s", from.stays, from.name, preview(l.ID, 60), l.Why)
	}
	report, err := takeover.Run(ctx, src, dest, opts)
	bar.clear()
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return errors.New("interrupted before anything was moved")
	}
	return a.reportImport(c, report, &from, opts.Queue, err)
}

func (a *app) reportImport(c *cli.Command, r *takeover.Report, from *importFrom, queue string, err error) error {
	if c.Bool("json") {
		out := struct {
			Queue     string  `json:"queue"`
			Moved     int64   `json:"moved"`
			Left      int64   `json:"left"`
			FirstLeft []stuck `json:"first_left,omitempty"`
			Finished  bool    `json:"finished"`
		}{queue, r.Moved, r.Left, nil, err == nil && !r.Interrupted}
		for _, l := range r.FirstLeft {
			out.FirstLeft = append(out.FirstLeft, stuck(l))
		}
		if jsonErr := printJSON(a.stdout, out); err == nil {
			err = jsonErr
		}
	} else if err == nil || r.Moved > 0 {
		say := func(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }
		say("%s %s from %s to queue %s", from.done, plural(r.Moved, from.one, from.many), from.name, queue)
		for _, l := range r.FirstLeft {
			say("  %s %s: %s: %s", from.stays, from.name, preview(l.ID, 60), l.Why)
		}
		if more := r.Left - int64(len(r.FirstLeft)); more > 0 {
			say("  and %d more", more)
		}
		if err == nil && !r.Interrupted {
			say("%s", from.tail)
		}
	}
	switch {
	case err != nil && r.Staged:
		return fmt.Errorf("%w; some entries may be on their way: run the same command again to go on", err)
	case err != nil:
		return err
	case r.Interrupted:
		return errors.New("interrupted: run the same command again to go on")
	case r.Left > 0:
		return fmt.Errorf("%s in %s", plural(r.Left, from.stay, from.allStay), from.name)
	}
	return nil
}
