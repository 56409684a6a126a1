package redisstore

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]Options{
		"redis://db":                       {Addrs: []string{"db:6379"}},
		"redis://:p%40ss@db:1/3":           {Addrs: []string{"db:1"}, Password: "p@ss", DB: 3},
		"redis://me:a:b@[::1]:7/":          {Addrs: []string{"[::1]:7"}, Username: "me", Password: "a:b"},
		"redis+cluster://a,b:2,c":          {Addrs: []string{"a:6379", "b:2", "c:6379"}, Cluster: true},
		"redis+sentinel://a,b/main/2":      {Addrs: []string{"a:26379", "b:26379"}, Sentinel: "main", DB: 2},
		"redis://db?wake=poll&prefix=shop": {Addrs: []string{"db:6379"}, Wake: WakePoll, Prefix: "shop"},
		"redis://db?shards=4&allow_eviction=true&wait_replicas=2&wait_timeout=300ms&sweep=1h": {
			Addrs: []string{"db:6379"}, Shards: 4, AllowEviction: true, WaitReplicas: 2, WaitTimeout: 300 * time.Millisecond, Sweep: time.Hour,
		},
	} {
		got, err := ParseURL(text)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v (%v), want %+v", text, got, err, want)
		}
	}
	if o, err := ParseURL("rediss://db"); err != nil || o.TLS == nil {
		t.Errorf("rediss: %+v, %v", o, err)
	}
}

func TestParseURLRefuses(t *testing.T) {
	for text, word := range map[string]string{
		"redis:/db":                                   "redis://",
		"redisx://db":                                 "scheme",
		"redis://":                                    "host",
		"redis://a,b":                                 "2 servers",
		"redis://a:99999":                             "host:port",
		"redis://a/x":                                 "database",
		"redis+cluster://a/1":                         "db",
		"redis+sentinel://a":                          "master",
		"redis://a?wake=shout":                        "wake",
		"redis://a?shards=0":                          "shards",
		"redis://a?shards=4&shards=5":                 "twice",
		"redis://a?wait_timeout=5":                    "wait_timeout",
		"redis://a?prefix=a{b}":                       "prefix",
		"redis://a?color=red":                         "color",
		"redis://user:secret@a?color=red":             "color",
		"redis+sentinel://a?sentinel_password=secret": "master",
		"redis+sentinel://a/m?sentinel_password=secret&color=red": "color",
	} {
		_, err := ParseURL(text)
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want something about %q", text, err, word)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in the message: %v", err)
		}
	}
}
