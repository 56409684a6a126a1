package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// needLong skips what takes long.
func needLong(t testing.TB) {
	if os.Getenv("DUETIME_LONG") == "" {
		t.Skip("long: run with make test-long")
	}
}

// must is for what tests do to servers.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do sends a command to a server that the test started.
func do(t testing.TB, r *testserver.RedisServer, args ...any) any {
	t.Helper()
	v, err := r.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// A server that forgets its scripts, cuts connections, and is killed and started
// again loses nothing that it has in its append-only file, and nobody sleeps on.
func TestServerLosesScriptsConnectionsAndItself(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, &testserver.RedisOptions{AOF: true})
	l := newLoad(t, alike(5, Options{Addrs: []string{server.Addr}}))
	l.start("orders", "mails:x")
	time.Sleep(500 * time.Millisecond)
	for range 3 {
		do(t, server, "SCRIPT", "FLUSH")
		time.Sleep(100 * time.Millisecond)
		do(t, server, "CLIENT", "KILL", "TYPE", "normal")
		time.Sleep(100 * time.Millisecond)
		do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
		time.Sleep(100 * time.Millisecond)
	}
	must(t, server.Stop())
	time.Sleep(200 * time.Millisecond)
	must(t, server.Restart())
	time.Sleep(300 * time.Millisecond)
	server.Kill() // what was written to the operating system is there
	must(t, server.Restart())
	l.finish(history.Options{})
	if l.failed.Load() == 0 {
		t.Error("nobody felt anything")
	}
}

// The same on a cluster, whose nodes fail one by one.
func TestClusterLosesScriptsConnectionsAndNodes(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, &testserver.RedisClusterOptions{
		RedisOptions: testserver.RedisOptions{AOF: true},
		NodeTimeout:  10 * time.Second, // nobody is there to take over
	})
	l := newLoad(t, alike(5, Options{Addrs: cluster.Addrs(), Cluster: true, Shards: 6}))
	l.start("orders", "mails:x")
	time.Sleep(500 * time.Millisecond)
	for _, node := range cluster.Nodes {
		do(t, node, "SCRIPT", "FLUSH")
		do(t, node, "CLIENT", "KILL", "TYPE", "normal")
		time.Sleep(100 * time.Millisecond)
		do(t, node, "CLIENT", "KILL", "TYPE", "pubsub")
		time.Sleep(100 * time.Millisecond)
		node.Kill()
		time.Sleep(100 * time.Millisecond)
		must(t, node.Restart())
	}
	must(t, cluster.AwaitOK())
	l.finish(history.Options{})
	if l.failed.Load() == 0 {
		t.Error("nobody felt anything")
	}
}

// B50: everything is deleted under a running system. What was there is gone, as
// nobody can help that; but whatever is scheduled afterwards goes its way, and no
// process has to be started again.
func TestEmptiedServer(t *testing.T) {
	for name, o := range map[string]Options{
		"one shard":      {Addrs: []string{testserver.Redis(t, nil).Addr}},
		"several shards": {Addrs: []string{testserver.Redis(t, nil).Addr}, Shards: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoad(t, alike(4, o))
			l.start("orders")
			time.Sleep(700 * time.Millisecond)
			must(t, l.plain[0].client.Do(context.Background(), l.plain[0].client.B().Flushdb().Build()).Error())
			time.Sleep(300 * time.Millisecond)
			// Only what is scheduled from here on can be judged.
			var ids []string
			for n := range 200 {
				id := fmt.Sprintf("after-%d", n)
				l.insist(func(ctx context.Context) error {
					r, err := l.stores[n%len(l.stores)].Schedule(ctx, []store.NewTask{{Queue: "orders", ID: id, Delay: 500 * time.Millisecond}})
					if err == nil && r[0].Outcome != store.Created {
						t.Errorf("%s: %+v", id, r[0])
					}
					return err
				})
				ids = append(ids, id)
			}
			l.enough()
			l.making.Wait()
			l.drain()
			l.end()
			l.running.Wait()
			ran := make(map[string]int)
			for _, log := range l.logs {
				for _, line := range log.Lines() {
					if line.Op == "settle" && line.End {
						for _, i := range line.Items {
							if i.Outcome == store.Acked.String() {
								ran[i.ID]++
							}
						}
					}
				}
			}
			for _, id := range ids {
				if ran[id] != 1 {
					t.Errorf("%s was done %d times", id, ran[id])
				}
			}
			checkWhole(t, l.plain[0])
		})
	}
}

// B30: a server that stands still for seconds makes tasks late, and skips none.
func TestServerStandsStill(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--enable-debug-command", "local"}})
	l := newLoad(t, alike(4, Options{Addrs: []string{server.Addr}}))
	l.start("orders")
	time.Sleep(300 * time.Millisecond)
	do(t, server, "DEBUG", "SLEEP", "2.5")
	l.finish(history.Options{})
}

// B06: an answer that does not arrive leaves a caller in doubt, and whoever
// repeats a call is told that it has been done.
func TestAnswersAreLost(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	proxy := testserver.Proxy(t, server.Addr)
	s := open(t, Options{Addrs: []string{proxy.Addr}})
	direct := open(t, Options{Addrs: []string{server.Addr}, Prefix: s.opts.Prefix})
	ctx := context.Background()
	task := store.NewTask{Queue: "orders", ID: "b06", Payload: []byte("x"), Delay: time.Hour}
	// unanswered makes a call whose answer is swallowed: again where the client
	// took a connection that was still being made, for which it lacks other answers.
	unanswered := func(what string, call func(ctx context.Context) error, happened func() bool) {
		t.Helper()
		for range 30 {
			proxy.DropReplies(true)
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			err := call(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s without an answer: %v", what, err)
			}
			done := happened()
			proxy.DropReplies(false)
			if done {
				return
			}
			for range 10 {
				_, _ = s.Stats(context.Background(), "orders")
			}
		}
		t.Fatalf("%s: the server does not get it", what)
	}
	state := func(id string) store.State {
		t.Helper()
		tasks, err := direct.Get(ctx, []store.Key{{Queue: "orders", ID: id}})
		must(t, err)
		if tasks[0].Task == nil {
			return 0
		}
		return tasks[0].Task.State
	}
	again := func(call func() error) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			err := call()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	// What is asked only the first time, such as for scripts, would be all that
	// has no answer.
	_, err := direct.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: "first"}})
	must(t, err)
	first, err := direct.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1}})
	must(t, err)
	_, err = direct.Settle(ctx, []store.Settlement{{Receipt: first[0].Tasks[0].Receipt, Action: store.Ack}})
	must(t, err)
	_, err = direct.Cancel(ctx, []store.CancelRequest{{Queue: "orders", ID: "first"}})
	must(t, err)
	_, err = s.Stats(ctx, "orders")
	must(t, err)
	schedule := func(ctx context.Context) ([]store.Result, error) { return s.Schedule(ctx, []store.NewTask{task}) }
	unanswered("Schedule", func(ctx context.Context) error { _, err := schedule(ctx); return err },
		func() bool { return state("b06") == store.StateScheduled })
	again(func() error {
		r, err := schedule(ctx)
		if err == nil && r[0].Outcome != store.Exists {
			t.Errorf("Schedule again: %+v", r[0])
		}
		return err
	})

	unanswered("Cancel", func(ctx context.Context) error {
		_, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "orders", ID: "b06"}})
		return err
	}, func() bool { return state("b06") == 0 })
	again(func() error {
		r, err := s.Cancel(ctx, []store.CancelRequest{{Queue: "orders", ID: "b06"}})
		if err == nil && r[0].Outcome != store.NotFound {
			t.Errorf("Cancel again: %+v", r[0])
		}
		return err
	})

	task.Delay = 0
	again(func() error { _, err := schedule(ctx); return err })
	claimed, err := direct.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1}})
	must(t, err)
	receipt := claimed[0].Tasks[0].Receipt
	retry := []store.Settlement{{Receipt: receipt, Action: store.Retry, Delay: 500 * time.Millisecond, Error: "no"}}
	unanswered("Retry", func(ctx context.Context) error { _, err := s.Settle(ctx, retry); return err },
		func() bool { return state("b06") != store.StateLeased })
	again(func() error {
		r, err := s.Settle(ctx, retry)
		if err == nil && r[0].Outcome != store.Stale {
			t.Errorf("Retry again: %+v", r[0])
		}
		return err
	})

	// A claim whose answer is lost comes back when its lease is over. The one
	// before it asks what a claim asks once a second.
	again(func() error {
		tasks, err := direct.Get(ctx, []store.Key{{Queue: "orders", ID: "b06"}})
		if err == nil && time.Until(tasks[0].Task.Due) > 0 {
			return errors.New("not yet due")
		}
		return err
	})
	again(func() error {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1, Lease: 50 * time.Millisecond}})
		if err == nil && len(r[0].Tasks) == 0 {
			return errors.New("it is due, and nobody gets it")
		}
		return err
	})
	again(func() error {
		if state("b06") == store.StateLeased {
			return errors.New("still leased")
		}
		return nil
	})
	unanswered("Claim", func(ctx context.Context) error {
		_, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1, Lease: 1500 * time.Millisecond}})
		return err
	}, func() bool { return state("b06") == store.StateLeased })
	again(func() error {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1}})
		if err == nil && len(r[0].Tasks) == 0 {
			return errors.New("it does not come back")
		}
		if err == nil && (r[0].Tasks[0].Task.Lost != 2 || r[0].Tasks[0].Task.Failures != 1) {
			t.Errorf("it came back as %+v", r[0].Tasks[0].Task)
		}
		return err
	})
	checkWhole(t, direct)
}

// TestBlackhole cuts the line of half of the processes without a word.
func TestBlackhole(t *testing.T) {
	t.Parallel()
	blackhole(t, WakeKeyspace, 3*time.Second)
}

// The same for long enough that nobody can have waited for it to end.
func TestLongBlackhole(t *testing.T) {
	needLong(t)
	for _, wake := range []Wake{WakePubSub, WakeKeyspace} {
		t.Run(string(wake), func(t *testing.T) {
			t.Parallel()
			blackhole(t, wake, 20*time.Second)
		})
	}
}

func blackhole(t *testing.T, wake Wake, d time.Duration) {
	server := testserver.Redis(t, nil)
	proxy := testserver.Proxy(t, server.Addr)
	processes := alike(6, Options{Addrs: []string{server.Addr}, Wake: wake})
	for i := 1; i < len(processes); i += 2 {
		processes[i].Addrs = []string{proxy.Addr}
	}
	l := newLoad(t, processes)
	l.start("orders")
	time.Sleep(500 * time.Millisecond)
	proxy.Blackhole(true)
	time.Sleep(d)
	proxy.Blackhole(false)
	l.finish(history.Options{})
	if l.failed.Load() == 0 {
		t.Error("nobody felt anything")
	}
}
