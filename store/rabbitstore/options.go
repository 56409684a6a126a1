package rabbitstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/store"
)

// Options change how a Store works. The zero value, and nil, are right for most.
type Options struct {
	// QueueType is Quorum where it is empty. It is that of all queues with one
	// prefix, for good: see Quorum and Classic.
	QueueType QueueType

	// Prefix begins the names of all that the store makes in RabbitMQ, followed
	// by a dot; "" means "duetime". 1 to 40 letters, digits, dots and dashes.
	// Stores with different prefixes know nothing of each other.
	Prefix string

	// Need names operations that the program can not do without: "cancel",
	// "reschedule", "get", "list", "unique_ids", "purge". Open refuses those that
	// RabbitMQ can not do, so that it comes out then and not in production.
	Need []string

	// MaxPayload is how long a task's payload may be, in bytes; 0 means
	// store.MaxPayloadBytes. RabbitMQ has a limit of its own (max_message_size).
	MaxPayload int

	// RetryFor is for how long Open tries to reach a broker that is not there;
	// 0: it fails at once; negative: until its context ends.
	RetryFor time.Duration

	// Logger takes what nobody is told otherwise, such as a lost connection; nil:
	// slog.Default().
	Logger *slog.Logger

	// For tests.
	powers int // of the ladder
	space  string
}

const (
	defaultPrefix = "duetime"
	maxPrefix     = 40
)

// check says what is wrong with options, and sets the defaults.
func (o *Options) check() error {
	o.QueueType = cmp.Or(o.QueueType, Quorum)
	if o.QueueType != Quorum && o.QueueType != Classic {
		return store.NewInputError("queue type", string(o.QueueType), "must be quorum or classic")
	}
	o.Prefix = cmp.Or(o.Prefix, defaultPrefix)
	if len(o.Prefix) > maxPrefix || store.CheckQueue(o.Prefix) != nil {
		return store.NewInputError("prefix", o.Prefix, "must be 1 to %d of A-Z a-z 0-9 . _ : -, the first a letter or digit", maxPrefix)
	}
	if o.MaxPayload < 0 {
		return store.NewInputError("max payload", o.MaxPayload, "must be 0 (%d bytes) or more", store.MaxPayloadBytes)
	}
	o.MaxPayload = cmp.Or(o.MaxPayload, store.MaxPayloadBytes)
	o.powers = cmp.Or(o.powers, allPowers)
	for _, need := range o.Need {
		switch {
		case slices.Contains(lacking, need):
			return fmt.Errorf("this program needs what RabbitMQ can not do: %w", store.Unsupported(storeName, need))
		case !slices.Contains(having, need):
			return store.NewInputError("need", need, "is not known; known are %s", strings.Join(slices.Concat(lacking, having), ", "))
		}
	}
	return nil
}

// What a program may say that it needs.
var (
	lacking = []string{"cancel", "reschedule", "get", "list", "unique_ids", "purge"}
	having  = []string{"settings", "release", "redrive"}
)

// parseURL takes what is ours out of a URL: ?queues=classic, ?prefix=name,
// ?need=cancel,get. The rest is for the client library, such as ?heartbeat=10.
func parseURL(raw string, o *Options) (clean, where string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The error of net/url shows the URL, the password included.
		return "", "", store.NewInputError("url", "", "is not a URL: write amqp://user:password@host:5672/vhost")
	}
	if (u.Scheme != "amqp" && u.Scheme != "amqps") || u.Hostname() == "" {
		return "", "", store.NewInputError("url", u.Redacted(), "must be amqp://user:password@host:5672/vhost, or amqps://")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "", "", store.NewInputError("url", u.Redacted(), "has the port %s, must be 1 to 65535", port)
		}
	}
	query := u.Query()
	for name, set := range map[string]func(string){
		"queues": func(v string) { o.QueueType = QueueType(v) },
		"prefix": func(v string) { o.Prefix = v },
		"need":   func(v string) { o.Need = append(slices.Clone(o.Need), strings.Split(v, ",")...) },
	} {
		for _, v := range query[name] {
			set(v)
		}
		query.Del(name)
	}
	for name := range query {
		if !slices.Contains(ofLibrary, name) {
			return "", "", store.NewInputError("url", u.Redacted(), "%q after the question mark is not known; known are queues, prefix, need, %s", name, strings.Join(ofLibrary, ", "))
		}
	}
	u.RawQuery = query.Encode()
	if _, err := amqp.ParseURI(u.String()); err != nil {
		return "", "", store.NewInputError("url", u.Redacted(), "%v", err)
	}
	return u.String(), u.Host + u.Path, nil
}

// ofLibrary are the parameters that the client library takes from a URL.
var ofLibrary = []string{"heartbeat", "connection_timeout", "channel_max", "auth_mechanism", "cacertfile", "certfile", "keyfile", "server_name_indication"}

// linkUntil is newLink, tried again for as long as RetryFor says.
func (o *Options) link(ctx context.Context, open func() (*link, error)) (*link, error) {
	started := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		l, err := open()
		if err == nil || !isAway(err) || o.RetryFor == 0 || o.RetryFor > 0 && time.Since(started)+pause > o.RetryFor {
			return l, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}
