package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/store"
)

// resharder is what a store has whose queues lie in shards.
type resharder interface {
	Reshard(ctx context.Context, queue string, n int, progress func(moved, left int64)) error
}

func (a *app) reshardCommand() *cli.Command {
	return &cli.Command{
		Name:      "reshard",
		Category:  categoryMove,
		Usage:     "give a queue on Redis another number of shards, while it is in use",
		ArgsUsage: "QUEUE N",
		Description: "--store must name the Redis itself, not a server before it. Everybody goes on working with the\n" +
			"queue meanwhile; tasks that are running are waited for. Where this command is interrupted, the\n" +
			"same command goes on. On one Redis server one shard is right; on a cluster a queue with much\n" +
			"traffic wants a few for each master.",
		Action: a.reshard,
	}
}

func (a *app) reshard(ctx context.Context, c *cli.Command) (err error) {
	args, err := arguments(c, "QUEUE", "N")
	if err != nil {
		return err
	}
	if err := store.CheckQueue(args[0]); err != nil {
		return err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 1 {
		return store.NewInputError("N", args[1], "must be a number of shards, 1 or more")
	}
	url := c.String("store")
	if url == "" {
		url = defaultServer
	}
	st, err := openToMove(ctx, url)
	if err != nil {
		return explain(err, url)
	}
	defer func() {
		if closeErr := st.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("closing the store: %w", closeErr)
		}
	}()
	r, ok := store.As[resharder](st)
	if !ok {
		return store.NewInputError("store", storeurl.Shown(url), "has no shards: name the Redis itself, as redis:// or redis+cluster://")
	}
	bar := newProgress(a.stderr)
	total := int64(0)
	err = r.Reshard(ctx, args[0], n, func(moved, left int64) {
		total = moved
		bar.show(moved, moved+left, args[0])
	})
	bar.clear()
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted: the queue works on over the old shards and the new; run the same command again to go on")
	case err != nil:
		return err
	}
	if c.Bool("json") {
		return printJSON(a.stdout, struct {
			Queue  string `json:"queue"`
			Shards int    `json:"shards"`
			Moved  int64  `json:"moved"`
		}{args[0], n, total})
	}
	fmt.Fprintf(a.stdout, "queue %s has %s; %s moved\n", args[0], plural(int64(n), "1 shard", "%d shards"), count(total, "task"))
	return nil
}
