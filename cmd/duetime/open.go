package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/mysqlstore"
	"github.com/duetime/duetime/store/rabbitstore"
	"github.com/duetime/duetime/store/redisstore"
	"github.com/duetime/duetime/store/remotestore"
)

const (
	defaultServer = "http://127.0.0.1:7333"
	storeForms    = "embedded:PATH, memory:, redis://HOST:PORT, redis+cluster://HOST,HOST, redis+sentinel://HOST/MASTER, mysql://USER:PASSWORD@HOST:PORT/DATABASE, amqp://USER:PASSWORD@HOST:PORT/VHOST, tiered:?hot=REDIS-URL&cold=MYSQL-URL, http://HOST:PORT, https://HOST:PORT"
)

// openStore opens the store that a URL names. It is the only place that knows
// them all. patient is for programs that go on for long: they outlast a restart
// of the server, where a command that a person typed says at once that there is
// none.
func openStore(ctx context.Context, rawURL string, patient bool) (store.Store, error) {
	refuse := func(problem string, args ...any) (store.Store, error) {
		return nil, store.NewInputError("store", storeurl.Shown(rawURL), problem, args...)
	}
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok {
		return refuse("has no scheme: write %s", storeForms)
	}
	switch scheme {
	case "memory":
		if rest != "" {
			return refuse("memory: takes nothing after the colon")
		}
		return memstore.New(nil), nil
	case "embedded":
		return openEmbedded(rawURL, rest)
	case "redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel":
		return openRedis(ctx, rawURL)
	case "mysql":
		return mysqlstore.Open(ctx, rawURL, nil)
	case "tiered":
		return openTiered(ctx, rawURL)
	case "amqp", "amqps":
		opts := &rabbitstore.Options{}
		if patient {
			opts.RetryFor = -1
		}
		return rabbitstore.Open(ctx, rawURL, opts)
	case "http", "https":
		opts := &remotestore.Options{RetryFor: -1}
		if patient {
			opts = nil
		}
		return remotestore.Open(ctx, rawURL, opts)
	}
	return refuse("unknown scheme %q; known are %s", scheme, storeForms)
}

// openEmbedded opens what stands after embedded: a path, and perhaps
// ?durability=interval. embedded:/var/lib/x and embedded:///var/lib/x are the same
// directory.
func openEmbedded(rawURL, rest string) (store.Store, error) {
	path, query, _ := strings.Cut(rest, "?")
	dir := strings.TrimPrefix(path, "//")
	if dir == "" {
		return nil, store.NewInputError("store", rawURL, "names no directory: write embedded:PATH")
	}
	opts := &diskstore.Options{}
	switch query {
	case "", "durability=always":
	case "durability=interval":
		opts.Durability = diskstore.Interval
	default:
		return nil, store.NewInputError("store", rawURL, "has %q after the path; all that may be there is durability=always or durability=interval", "?"+query)
	}
	return diskstore.Open(dir, opts)
}

// openRedis opens a store on Redis; what an operator should know goes to
// standard error.
func openRedis(ctx context.Context, rawURL string) (store.Store, error) {
	opts, err := redisstore.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	opts.Warn = func(message string) { fmt.Fprintln(os.Stderr, "duetime: "+message) }
	return redisstore.Open(ctx, opts)
}

// dataDir is where serve keeps its tasks if nobody says otherwise.
func dataDir() (string, error) {
	// The specification of XDG_DATA_HOME says that a relative path is to be
	// ignored.
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "duetime"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no place for the embedded store: %w; name one with --store embedded:PATH", err)
	}
	return filepath.Join(home, ".local", "share", "duetime"), nil
}

// noServer reports whether an error says that a server is not there, or not yet.
func noServer(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

// explain adds what to do where the cause is a common one.
func explain(err error, storeURL string) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		if !strings.HasPrefix(storeURL, "http") { // a server of somebody else's
			return fmt.Errorf("there is no server at %s: is it running? Name another store with --store (%w)", storeurl.Shown(storeURL), err)
		}
		return fmt.Errorf("there is no server at %s: start one with duetime serve, or name another store with --store (%w)", storeurl.Shown(storeURL), err)
	}
	return err
}
