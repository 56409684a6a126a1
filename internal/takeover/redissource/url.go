package redissource

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

// Dial connects to the Redis that a URL names:
//
//	redis://[user:password@]host[:port][/db]
//	redis+cluster://[user:password@]h1[:port],h2,h3
//	redis+sentinel://[user:password@]s1[:port],s2/master[/db]
//
// with rediss in place of redis for TLS, and ?sentinel_user= and
// ?sentinel_password= for sentinels that ask for them. Characters that mean
// something in a URL are percent-encoded. An *InputError shows no password.
func Dial(text string) (rueidis.Client, error) {
	o, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	// What others write is read anew each time.
	o.DisableCache = true
	return rueidis.NewClient(o)
}

func parseURL(text string) (rueidis.ClientOption, error) {
	var o rueidis.ClientOption
	refuse := func(problem string, args ...any) (rueidis.ClientOption, error) {
		return o, store.NewInputError("URL", hidePassword(text), problem, args...)
	}
	scheme, rest, ok := strings.Cut(text, "://")
	kind, isTLS := strings.CutPrefix(scheme, "rediss")
	if !isTLS {
		kind = strings.TrimPrefix(scheme, "redis")
	}
	if !ok || kind == scheme || kind != "" && kind != "+cluster" && kind != "+sentinel" {
		return refuse("must begin with redis://, rediss://, redis+cluster:// or redis+sentinel://")
	}
	rest, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return refuse("has a query that is not well formed")
	}
	for name, v := range values {
		switch {
		case kind == "+sentinel" && name == "sentinel_user":
			o.Sentinel.Username = v[0]
		case kind == "+sentinel" && name == "sentinel_password":
			o.Sentinel.Password = v[0]
		default:
			return refuse("has the parameter %q, which means nothing here", name)
		}
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		rest = rest[at+1:]
		var err1, err2 error
		o.Username, err1 = url.PathUnescape(user)
		o.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return refuse("the user name or password is not percent-encoded correctly")
		}
	}
	hosts, path, _ := strings.Cut(rest, "/")
	port := "6379"
	if kind == "+sentinel" {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return refuse("names no host, or one that is empty")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		o.InitAddress = append(o.InitAddress, host)
	}
	switch kind {
	case "":
		if len(o.InitAddress) > 1 {
			return refuse("names %d servers: write redis+cluster:// or redis+sentinel://", len(o.InitAddress))
		}
		o.ForceSingleClient = true
	case "+sentinel":
		o.Sentinel.MasterSet, path, _ = strings.Cut(path, "/")
		if o.Sentinel.MasterSet == "" {
			return refuse("names no master: write redis+sentinel://host/MASTER")
		}
	}
	if path != "" {
		if o.SelectDB, err = strconv.Atoi(path); err != nil || o.SelectDB < 0 || kind == "+cluster" && o.SelectDB != 0 {
			return refuse("%q is no database, which is a number, and 0 on a cluster", path)
		}
	}
	if isTLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		o.Sentinel.TLSConfig = o.TLSConfig
	}
	return o, nil
}

func hidePassword(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return text
	}
	user, _, ok := strings.Cut(rest[:at], ":")
	if !ok {
		return text
	}
	return scheme + "://" + user + ":xxxxx" + rest[at:]
}
