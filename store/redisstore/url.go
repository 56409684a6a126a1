package redisstore

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/store"
)

// ParseURL reads a store URL:
//
//	redis://[user:password@]host[:port][/db]
//	rediss://…                                      with TLS
//	redis+cluster://[user:password@]h1[:port],h2,h3
//	redis+sentinel://[user:password@]s1[:port],s2/master[/db]
//
// rediss+cluster and rediss+sentinel are those with TLS. Ports are 6379 where
// none is given, of sentinels 26379. The query takes prefix, shards, wake,
// allow_eviction (true, false), wait_replicas, wait_timeout, sweep (durations
// with a unit, such as 500ms), and sentinel_user and sentinel_password.
// Characters that mean something in a URL are percent-encoded. The error is an
// *InputError that shows no password.
func ParseURL(text string) (*Options, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	refuse := func(problem string, args ...any) (*Options, error) {
		return nil, store.NewInputError("store", storeurl.Shown(text), problem, args...)
	}
	if !ok {
		return refuse("must begin with redis://, rediss://, redis+cluster:// or redis+sentinel://")
	}
	kind, tlsOn := strings.CutPrefix(scheme, "rediss")
	if !tlsOn {
		if kind, ok = strings.CutPrefix(scheme, "redis"); !ok {
			return refuse("unknown scheme %q", scheme)
		}
	}
	o := &Options{}
	defaultPort := "6379"
	switch kind {
	case "":
	case "+cluster":
		o.Cluster = true
	case "+sentinel":
		defaultPort = "26379"
	default:
		return refuse("unknown scheme %q", scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		rest = rest[at+1:]
		var err1, err2 error
		o.Username, err1 = url.PathUnescape(user)
		o.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return refuse("the user name or password is not percent-encoded correctly: %s in it is written %s", "%", "%25")
		}
	}
	// A question mark in a password ends what is before the query. What would be named
	// then is a part of the password.
	cut := func(err error) (*Options, error) {
		if strings.Contains(query, "@") {
			return refuse("can not be read: in a user name or password ? is written %s, / is %s, @ is %s and # is %s", "%3F", "%2F", "%40", "%23")
		}
		return refuse("%v", err)
	}
	hosts, path, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, defaultPort)
		if err != nil {
			return cut(err)
		}
		o.Addrs = append(o.Addrs, addr)
	}
	if kind == "" && len(o.Addrs) > 1 {
		return refuse("names %d servers: write redis+cluster:// or redis+sentinel://", len(o.Addrs))
	}
	if kind == "+sentinel" {
		master, db, _ := strings.Cut(path, "/")
		if master == "" {
			return refuse("names no master: write redis+sentinel://host/MASTER")
		}
		o.Sentinel, path = master, db
	}
	if path != "" {
		db, err := strconv.Atoi(path)
		if err != nil || db < 0 {
			return refuse("%q is no database: it must be a number", path)
		}
		o.DB = db
	}
	if tlsOn {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := o.readQuery(query); err != nil {
		return cut(err)
	}
	if _, err := o.withDefaults(); err != nil {
		return nil, err
	}
	return o, nil
}

func address(host, port string) (string, error) {
	if host == "" {
		return "", store.NewInputError("host", "", "is empty")
	}
	if h, p, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 || h == "" {
			return "", store.NewInputError("host", host, "must be host:port")
		}
		return host, nil
	}
	host = strings.Trim(host, "[]")
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return "", store.NewInputError("host", host, "must be host:port")
	}
	return net.JoinHostPort(host, port), nil
}

func (o *Options) readQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	for name, all := range values {
		if len(all) > 1 {
			return store.NewInputError(name, "", "is given twice")
		}
		v := all[0]
		var err error
		switch name {
		case "prefix":
			o.Prefix = v
		case "shards":
			o.Shards, err = number(v)
		case "wake":
			o.Wake = Wake(v)
		case "allow_eviction":
			o.AllowEviction, err = strconv.ParseBool(v)
		case "wait_replicas":
			o.WaitReplicas, err = number(v)
		case "wait_timeout":
			o.WaitTimeout, err = time.ParseDuration(v)
		case "sweep":
			o.Sweep, err = time.ParseDuration(v)
		case "sentinel_user":
			o.SentinelUsername = v
		case "sentinel_password":
			o.SentinelPassword = v
		default:
			return store.NewInputError(name, v, "is not known; known are prefix, shards, wake, allow_eviction, wait_replicas, wait_timeout, sweep, sentinel_user, sentinel_password")
		}
		if err != nil {
			return store.NewInputError(name, v, "can not be read (%v)", err)
		}
	}
	return nil
}

// number is strconv.Atoi that does not take 0 for "not given".
func number(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err == nil && n < 1 {
		err = store.NewInputError("number", v, "must be 1 or more")
	}
	return n, err
}
