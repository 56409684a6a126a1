package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/redissource"
	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

func (a *app) importCommand() *cli.Command {
	redis := a.importRedisCommand()
	redis.OnUsageError, redis.HideHelpCommand = onUsageError, true
	return &cli.Command{
		Name:      "import",
		Category:  categoryMove,
		Usage:     "take over what a hand-made scheduler holds: import redis",
		ArgsUsage: "redis",
		Commands:  []*cli.Command{redis},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usagef("there is no import from %q; see %s --help", c.Args().First(), c.FullName())
			}
			return usagef("%s needs to be told from where: redis; see %s --help", c.FullName(), c.FullName())
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
	switch conflict := c.String("on-conflict"); conflict {
	case "":
	case "keep", "replace":
		t.Replace = conflict == "replace"
	default:
		return o, t, store.NewInputError("--on-conflict", conflict, "must be keep or replace")
	}
	if o.Keep && t.Follow {
		return o, t, usagef("--keep and --follow do not go together: a source that keeps everything has to be read whole each time")
	}
	if o.Hash == o.ZSet {
		return o, t, store.NewInputError("--hash", o.Hash, "is the sorted set's key too")
	}
	return o, t, nil
}

func (a *app) importRedis(ctx context.Context, c *cli.Command) (err error) {
	args, err := arguments(c, "URL")
	if err != nil {
		return err
	}
	source, opts, err := importFlags(c)
	if err != nil {
		return err
	}
	url := c.String("store")
	if url == "" {
		url = defaultServer
	}
	client, err := redissource.Dial(args[0])
	if err != nil {
		return fmt.Errorf("redis at %s: %w", withoutPassword(args[0]), err)
	}
	defer client.Close()
	dest, err := openToMove(ctx, url)
	if err != nil {
		return explain(err, url)
	}
	defer func() {
		if closeErr := dest.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("closing the store: %w", closeErr)
		}
	}()
	source.To, source.MaxPayload = storeName(url), dest.Capabilities().MaxPayload
	src, err := redissource.New(client, source)
	if err != nil {
		return err
	}
	bar := newProgress(a.stderr)
	opts.Progress = func(done, total int64) { bar.show(done, total, source.ZSet) }
	report, err := takeover.Run(ctx, src, dest, opts)
	bar.clear()
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return errors.New("interrupted before anything was moved")
	}
	return a.reportImport(c, report, &source, err)
}

func (a *app) reportImport(c *cli.Command, r *takeover.Report, source *redissource.Options, err error) error {
	done := "moved"
	if source.Keep {
		done = "copied"
	}
	if c.Bool("json") {
		out := struct {
			Queue     string  `json:"queue"`
			Moved     int64   `json:"moved"`
			Left      int64   `json:"left"`
			FirstLeft []stuck `json:"first_left,omitempty"`
			Finished  bool    `json:"finished"`
		}{source.Queue, r.Moved, r.Left, nil, err == nil && !r.Interrupted}
		for _, l := range r.FirstLeft {
			out.FirstLeft = append(out.FirstLeft, stuck(l))
		}
		if jsonErr := printJSON(a.stdout, out); err == nil {
			err = jsonErr
		}
	} else if err == nil || r.Moved > 0 {
		say := func(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }
		say("%s %s from %s to queue %s", done, plural(r.Moved, "1 entry", "%d entries"), source.ZSet, source.Queue)
		for _, l := range r.FirstLeft {
			say("  stays in %s: %s: %s", source.ZSet, preview(l.ID, 60), l.Why)
		}
		if more := r.Left - int64(len(r.FirstLeft)); more > 0 {
			say("  and %d more", more)
		}
		switch {
		case err != nil || r.Interrupted:
		case source.Keep:
			say("what was copied is noted in %s, so that it is not copied again: delete that key when you need it no more", redissource.ImportedKey(source.ZSet))
		default:
			say("now point producers to duetime, and let those who cancel do it there; the same command moves what comes to %s until then", source.ZSet)
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
		return fmt.Errorf("%s in %s", plural(r.Left, "1 entry stays", "%d entries stay"), source.ZSet)
	}
	return nil
}
