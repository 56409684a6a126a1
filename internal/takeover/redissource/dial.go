package redissource

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/redisstore"
)

// Dial connects to the Redis that a URL names, in the forms that
// redisstore.ParseURL knows. An *InputError shows no password.
func Dial(url string) (rueidis.Client, error) {
	o, err := clientOption(url)
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(o)
	if err != nil && strings.Contains(err.Error(), "NOPERM") {
		err = serverError(err)
	}
	return client, err
}

// serverError says what to do where the user lacks a permission.
func serverError(err error) error {
	if strings.Contains(err.Error(), "NOPERM") {
		return fmt.Errorf("redis: the user lacks a permission: docs/moving.md lists what an import needs, +select among it for a database other than 0 (%w)", err)
	}
	return fmt.Errorf("redis: %w", err)
}

func clientOption(url string) (rueidis.ClientOption, error) {
	o, err := redisstore.ParseURL(url)
	if err != nil {
		var input *store.InputError
		if errors.As(err, &input) && input.Field == "store" {
			input.Field = "URL"
		}
		return rueidis.ClientOption{}, err
	}
	if o.Prefix != "" || o.Shards != 0 || o.Wake != "" || o.AllowEviction || o.WaitReplicas != 0 || o.WaitTimeout != 0 || o.Sweep != 0 {
		return rueidis.ClientOption{}, store.NewInputError("URL", "", "has options of a store after the question mark, which mean nothing here")
	}
	c := rueidis.ClientOption{
		InitAddress: o.Addrs, Username: o.Username, Password: o.Password, TLSConfig: o.TLS, SelectDB: o.DB, ClientName: "duetime-import",
		DisableCache: true, // what others write is read anew each time
	}
	c.Dialer.Timeout = 5 * time.Second
	switch {
	case o.Cluster:
	case o.Sentinel != "":
		c.Sentinel = rueidis.SentinelOption{MasterSet: o.Sentinel, Username: o.SentinelUsername, Password: o.SentinelPassword, TLSConfig: o.TLS}
	default:
		c.ForceSingleClient = true
	}
	return c, nil
}
