package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/mysqlstore"
	"github.com/duetime/duetime/store/redisstore"
	"github.com/duetime/duetime/store/tieredstore"
)

// openTiered opens tiered:?hot=REDIS-URL&cold=MYSQL-URL, perhaps with &window=5m.
// Redis need not be there, MySQL has to be.
func openTiered(ctx context.Context, rawURL string) (store.Store, error) {
	refuse := func(problem string, args ...any) (store.Store, error) {
		return nil, store.NewInputError("store", storeurl.Shown(rawURL), problem, args...)
	}
	text, ok := strings.CutPrefix(rawURL, "tiered:?")
	if !ok {
		return refuse("write tiered:?hot=REDIS-URL&cold=MYSQL-URL, both escaped as values of a query")
	}
	values, err := url.ParseQuery(text)
	if err != nil {
		return refuse("is not escaped as a query is") // the error would show a part of it
	}
	opts := &tieredstore.Options{}
	for name, list := range values {
		if len(list) > 1 {
			return refuse("has more than one value for one option; escape the & in hot and cold as %s", "%26")
		}
		switch name {
		case "hot", "cold":
		case "window":
			if opts.Window, err = time.ParseDuration(list[0]); err != nil || opts.Window <= 0 {
				return refuse("has a window that is not a duration such as 5m")
			}
		default:
			return refuse("has an option other than hot, cold and window; escape the & in hot and cold as %s", "%26")
		}
	}
	hot, cold := values.Get("hot"), values.Get("cold")
	if !strings.HasPrefix(hot, "redis") || !strings.HasPrefix(cold, "mysql://") {
		return refuse("hot has to be the URL of a Redis and cold that of a MySQL, mysql://…")
	}
	redis, err := redisstore.ParseURL(hot)
	if err != nil {
		return nil, err
	}
	redis.Warn = func(message string) { fmt.Fprintln(os.Stderr, "duetime: "+message) }
	redis.Sweep = -1 // there are no tasks of its own
	truth, err := mysqlstore.Open(ctx, cold, nil)
	if err != nil {
		return nil, err
	}
	s, err := tieredstore.Open(ctx, truth, func(ctx context.Context) (tieredstore.Hot, error) {
		r, err := redisstore.Open(ctx, redis)
		if err != nil {
			return nil, err
		}
		return r.Windows(), nil
	}, opts)
	if err != nil {
		_ = truth.Close()
		return nil, err
	}
	return s, nil
}
