package redisstore

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

// restrict gives servers the user that docs/operations.md describes, and
// returns the words of the command. Tests that log in as that user show that what the document
// lists is enough.
func restrict(t testing.TB, servers ...*testserver.RedisServer) []any {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s)\nACL SETUSER duetime .*?\n` + "```").FindString(string(text))
	if block == "" {
		t.Fatal("docs/operations.md has no line ACL SETUSER duetime")
	}
	var words []any
	for _, w := range strings.Fields(strings.ReplaceAll(strings.Trim(block, "`\n"), "\\\n", " ")) {
		words = append(words, w)
	}
	for _, server := range servers {
		if _, err := server.Do(words...); err != nil {
			t.Fatal(err)
		}
	}
	return words
}

const aclUser, aclPassword = "duetime", "PASSWORD" // as in the document

// TestTheListedPermissionsAreEnough lets the tests of one process and of several run
// as the user of the document.
func TestTheListedPermissionsAreEnough(t *testing.T) {
	server, cluster := testserver.Redis(t, nil), sharedCluster(t)
	words := restrict(t, append([]*testserver.RedisServer{server}, cluster.Nodes...)...)
	as := func(o Options) Options {
		o.Username, o.Password = aclUser, aclPassword
		return o
	}
	t.Run("one server", func(t *testing.T) {
		storetest.RunOnly(t, storetest.Harness{Open: harness(as(Options{Addrs: []string{server.Addr}}))},
			"settle", "cancel", "reschedule", "list", "stats", "settings", "dead")
	})
	for _, o := range []Options{
		{Addrs: []string{server.Addr}},
		{Addrs: []string{server.Addr}, Shards: 3},
		{Addrs: cluster.Addrs(), Cluster: true},
	} {
		for _, wake := range []Wake{WakePubSub, WakeKeyspace} {
			o := as(o)
			o.Wake, o.Prefix = wake, nextPrefix()
			o.Warn = nil // it may not set notify-keyspace-events
			liveOnce(t, o)
		}
	}
	called := ""
	for _, r := range append([]*testserver.RedisServer{server}, cluster.Nodes...) {
		stats, err := r.Do("INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		called += fmt.Sprint(stats)
		log, err := r.Do("ACL", "LOG")
		if err != nil {
			t.Fatal(err)
		}
		// What is denied and bearable: names for the connection, and setting events.
		for _, entry := range log.([]any) {
			if text := fmt.Sprint(entry); !strings.Contains(text, "client|") && !strings.Contains(text, "config|set") {
				t.Errorf("%s denied something: %s", r.Addr, text)
			}
		}
	}
	// These are sent now and then, to replicas, or when a Reshard was interrupted.
	rare := []string{"ping", "wait", "cluster|slots", "cluster|shards", "unsubscribe", "sunsubscribe", "hgetall"}
	for _, word := range words {
		name, ok := strings.CutPrefix(fmt.Sprint(word), "+")
		if ok && !slices.Contains(rare, name) && !strings.Contains(called, "cmdstat_"+name+":") {
			t.Errorf("the document lists %s, which nobody called", name)
		}
	}
}

// liveOnce does what those groups of the conformance suite do not: hearing of
// another process, taking tasks in, another number of shards, sweeping.
func liveOnce(t *testing.T, o Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, other := open(t, o), open(t, o)
	if err := s.Windows().Ping(ctx); err != nil {
		t.Errorf("a window: %v", err)
	}
	schedule := func(id string, delay time.Duration) {
		r, err := other.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: id, Delay: delay}})
		if err != nil || r[0].Outcome != store.Created {
			t.Fatal(r, err)
		}
	}
	schedule("1", time.Hour)
	ticks, stop := s.Wake("orders")
	defer stop()
	quiet(ticks)
	if o.Wake == WakePubSub { // events are not set here
		schedule("2", time.Minute)
		select {
		case <-ticks:
		case <-time.After(10 * time.Second):
			t.Errorf("%+v: nothing was heard of another process", o)
		}
	}
	taken, err := s.Import(ctx, []store.Task{{Queue: "orders", ID: "3", State: store.StateScheduled, Due: time.Now(), Created: time.Now()}})
	if err != nil || taken[0].Outcome != store.Created {
		t.Errorf("%+v: import: %v, %v", o, taken, err)
	}
	if err := s.Reshard(ctx, "orders", 7, nil); err != nil {
		t.Errorf("%+v: reshard: %v", o, err)
	}
	got, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1}})
	if err != nil || len(got[0].Tasks) != 1 {
		t.Errorf("%+v: claim: %v, %v", o, got, err)
	}
	if _, err := s.Sweep(ctx, "orders"); err != nil {
		t.Errorf("%+v: sweep: %v", o, err)
	}
}

// TestAMissingPermissionNamesTheDocument: whoever lacks one finds the list.
func TestAMissingPermissionNamesTheDocument(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	restrict(t, server)
	if _, err := server.Do("ACL", "SETUSER", aclUser, "-info"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(context.Background(), &Options{Addrs: []string{server.Addr}, Username: aclUser, Password: aclPassword, Sweep: -1})
	if err == nil || !strings.Contains(err.Error(), "docs/operations.md") {
		t.Errorf("without a permission the error is %v, want one that names the document", err)
	}
}

func TestAUserMayNotReachOtherKeys(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	restrict(t, server)
	s := open(t, Options{Addrs: []string{server.Addr}, Username: aclUser, Password: aclPassword, Prefix: "other"})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	results, err := s.Schedule(ctx, []store.NewTask{{Queue: "q", ID: "1"}})
	if err == nil {
		err = results[0].Err
	}
	if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "begin with the prefix") {
		t.Errorf("a task under another prefix: %v, want NOPERM and what to do", err)
	}
}
