package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/server"
	"github.com/duetime/duetime/store"
)

func (a *app) serveCommand() *cli.Command {
	return &cli.Command{
		Name:     "serve",
		Category: categoryRun,
		Usage:    "serve a store over HTTP, to any language",
		Description: "Without --store the tasks are kept in the user's data directory: $XDG_DATA_HOME/duetime, or\n" +
			"~/.local/share/duetime. The API is described by the server itself, at /docs.\n\n" +
			"There is no authentication: whoever reaches the address can do everything.\n\n" +
			"SIGTERM or Ctrl-C lets the calls in flight finish, and closes the store.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: defaultListen, Usage: "the `ADDRESS` to listen on, HOST:PORT; port 0 takes a free one"},
			&cli.StringSliceFlag{Name: "host", Usage: "a `NAME` that clients call the server by, beside localhost and IP addresses; may be repeated"},
		},
		Action: a.serve,
	}
}

const defaultListen = "127.0.0.1:7333"

func (a *app) serve(ctx context.Context, c *cli.Command) (err error) {
	if _, err := arguments(c); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(c.String("listen")); err != nil {
		return store.NewInputError("--listen", c.String("listen"), "is not an address: write HOST:PORT, such as %s", defaultListen)
	}
	url := c.String("store")
	if url == "" {
		dir, err := dataDir()
		if err != nil {
			return err
		}
		url = "embedded:" + dir
	}
	if strings.HasPrefix(url, "http:") || strings.HasPrefix(url, "https:") {
		return store.NewInputError("store", storeurl.Shown(url), "is a server itself: serve needs a store, such as embedded:PATH")
	}

	// Writing to disk holds one of Go's processors for as long as it takes, and what
	// is due meanwhile waits. On two cores, with 2,000 tasks a second, four in place
	// of two took the lateness at the consumer from 1.1 to 0.9 ms (p50) and from 3.9
	// to 3.0 ms (p99).
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0)))
	}

	// The port first: it is the cheaper one to give back.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.String("listen"))
	if err != nil {
		return fmt.Errorf("can not listen: %w", err)
	}
	defer listener.Close()
	st, err := openStore(ctx, url, true)
	if err != nil {
		return err
	}
	// Only when the store is closed is everything on disk.
	defer func() { err = errors.Join(err, st.Close()) }()
	srv, err := server.New(st, &server.Options{Logger: a.logger(), Version: versionText(), Hosts: c.StringSlice("host")})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "duetime serves http://%s, docs at /docs; tasks are in %s (%s)\n",
		listener.Addr(), storeurl.Shown(url), st.Capabilities().Durability)
	said := make(chan struct{})
	unsaid := context.AfterFunc(ctx, func() {
		defer close(said)
		fmt.Fprintln(a.stderr, "stopping when the calls in flight have finished")
	})
	err = srv.Serve(ctx, listener)
	if !unsaid() {
		<-said
	}
	return err
}
