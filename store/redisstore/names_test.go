package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// B48, B49: on a cluster names and ids of any kind go their whole way, in calls
// that are about many queues at once; what is no name is refused by all; and the
// queues lie on all nodes.
func TestNamesOnCluster(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	o := Options{Addrs: cluster.Addrs(), Cluster: true, Shards: 3, Prefix: nextPrefix() + ":a/b"}
	producer, consumer := open(t, o), open(t, o)
	ctx := context.Background()
	queues := []string{
		"a", "a:b", "a:b:c", "A", "0", "007", "1-1.0", "queues", "queue", "orders:queue", "meta", "1:meta", "x:", "x-", "x.", "x_",
		strings.Repeat("q", store.MaxQueueBytes), strings.Repeat("1:", store.MaxQueueBytes/2),
	}
	ids := []string{
		"{other}", "{}", "}{", "{", "}", "{a}{b}", "a:b", "::", " ", "a b", "*", "?[x]", "中文 订单", "😀", "é", "e\u0301",
		strings.Repeat("{", store.MaxIDBytes), strings.Repeat("中", store.MaxIDBytes/3), "'; --", "%2F", "\\", "\u00a0",
	}
	var tasks []store.NewTask
	for _, id := range ids {
		for _, q := range queues {
			tasks = append(tasks, store.NewTask{Queue: q, ID: id, Payload: []byte(q + "\n" + id), Delay: time.Hour})
		}
	}
	outcomes := func(what string, results []store.Result, err error, want store.Outcome) {
		t.Helper()
		must(t, err)
		for i := range results {
			if results[i].Outcome != want {
				t.Fatalf("%s of %q in %q: %+v, want %v", what, tasks[i].ID, tasks[i].Queue, results[i], want)
			}
		}
	}
	results, err := producer.Schedule(ctx, tasks)
	outcomes("schedule", results, err, store.Created)
	results, err = consumer.Schedule(ctx, tasks)
	outcomes("schedule again", results, err, store.Exists)
	keys := make([]store.Key, len(tasks))
	sooner := make([]store.RescheduleRequest, len(tasks))
	for i := range tasks {
		keys[i] = store.Key{Queue: tasks[i].Queue, ID: tasks[i].ID}
		sooner[i] = store.RescheduleRequest{Queue: tasks[i].Queue, ID: tasks[i].ID}
	}
	results, err = consumer.Get(ctx, keys)
	outcomes("get", results, err, store.Found)
	for i := range results {
		if got := results[i].Task; string(got.Payload) != string(tasks[i].Payload) || got.ID != tasks[i].ID || got.Queue != tasks[i].Queue {
			t.Errorf("%q in %q is %+v", tasks[i].ID, tasks[i].Queue, got)
		}
	}
	results, err = producer.Reschedule(ctx, sooner)
	outcomes("reschedule", results, err, store.Rescheduled)

	// Every task is claimed, and ends in one of five ways.
	actions := []store.Action{store.Ack, store.Retry, store.Bury, store.Snooze, store.Release}
	want := []store.Outcome{store.Acked, store.Retrying, store.Dead, store.Snoozed, store.Released}
	requests := make([]store.ClaimRequest, len(queues))
	for i, q := range queues {
		requests[i] = store.ClaimRequest{Queue: q, Max: len(ids)}
	}
	claimed, err := consumer.Claim(ctx, requests)
	must(t, err)
	var settlements []store.Settlement
	for i := range claimed {
		if len(claimed[i].Tasks) != len(ids) {
			t.Fatalf("queue %q: %d tasks of %d", queues[i], len(claimed[i].Tasks), len(ids))
		}
		for n, l := range claimed[i].Tasks {
			if string(l.Payload) != queues[i]+"\n"+l.ID {
				t.Errorf("%q in %q has the payload %q", l.ID, queues[i], l.Payload)
			}
			settlements = append(settlements, store.Settlement{Receipt: l.Receipt, Action: actions[n%len(actions)], Error: "中文 {x}"})
		}
	}
	results, err = producer.Settle(ctx, settlements) // any process may
	must(t, err)
	for i := range results {
		if results[i].Outcome != want[i%len(ids)%len(actions)] {
			t.Errorf("%v: %+v", settlements[i].Action, results[i])
		}
	}
	dead := int64((len(ids) + 2) / len(actions))
	for _, q := range queues {
		st, err := consumer.Stats(ctx, q)
		must(t, err)
		if st.Dead != dead || st.Leased != 0 {
			t.Errorf("queue %q: %+v, want %d dead", q, st, dead)
		}
		page, err := consumer.List(ctx, store.ListRequest{Queue: q, State: store.StateDead, Limit: 1})
		must(t, err)
		if len(page.Tasks) != 1 {
			t.Fatalf("queue %q: the list of the dead has %d tasks", q, len(page.Tasks))
		}
		if n, err := consumer.Redrive(ctx, store.RedriveRequest{Queue: q, IDs: []string{page.Tasks[0].ID}}); err != nil || n != 1 {
			t.Errorf("queue %q: redrive %d, %v", q, n, err)
		}
		if n, err := producer.Purge(ctx, q, store.StateDead); err != nil || int64(n) != dead-1 {
			t.Errorf("queue %q: purged %d dead, %v, want %d", q, n, err, dead-1)
		}
	}
	results, err = consumer.Cancel(ctx, cancels(keys))
	must(t, err)
	cancelled := 0
	for i := range results {
		if results[i].Outcome == store.Cancelled {
			cancelled++
		}
	}
	if acked := (len(ids) + 4) / len(actions); cancelled != len(queues)*(len(ids)-acked-int(dead)+1) {
		t.Errorf("%d of what was left were cancelled", cancelled)
	}
	names, err := producer.Queues(ctx)
	must(t, err)
	if len(names) != len(queues) {
		t.Errorf("queues: %q", names)
	}
	checkWhole(t, producer)

	for _, q := range []string{"", "{a}", "{}x", "x{", "a b", "中文", "-a", ":a", "a/b", "a\n", "*", strings.Repeat("q", store.MaxQueueBytes+1)} {
		var input *store.InputError
		r, err := producer.Schedule(ctx, []store.NewTask{{Queue: q, ID: "1"}})
		must(t, err)
		if !errors.As(r[0].Err, &input) {
			t.Errorf("schedule into %q: %+v", q, r[0])
		}
		c, err := producer.Claim(ctx, []store.ClaimRequest{{Queue: q, Max: 1}})
		must(t, err)
		if !errors.As(c[0].Err, &input) {
			t.Errorf("claim from %q: %+v", q, c[0])
		}
		if _, err := producer.Stats(ctx, q); !errors.As(err, &input) {
			t.Errorf("stats of %q: %v", q, err)
		}
	}

	// A queue's shards, and the queues, are on all nodes.
	for _, node := range cluster.Nodes {
		found, _ := do(t, node, "KEYS", o.Prefix+":*").([]any)
		if len(found) < len(queues)/2 {
			t.Errorf("a node of %d has %d keys", len(cluster.Nodes), len(found))
		}
	}
}

func cancels(keys []store.Key) []store.CancelRequest {
	requests := make([]store.CancelRequest, len(keys))
	for i, k := range keys {
		requests[i] = store.CancelRequest{Queue: k.Queue, ID: k.ID}
	}
	return requests
}

// A user who may touch the store's keys and channels alone, and may neither ask
// for nor change settings, can use it.
func TestUserWithFewRights(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	do(t, server, "ACL", "SETUSER", "app", "on", ">secret", "~mine:*", "&mine:*", "&__keyspace@0__:mine:*", "+@all", "-@admin", "-@dangerous", "+info")
	for _, wake := range []Wake{WakePubSub, WakeKeyspace} {
		t.Run(string(wake), func(t *testing.T) {
			var warned []string
			s := open(t, Options{
				Addrs: []string{server.Addr}, Username: "app", Password: "secret", Prefix: "mine", Wake: wake, Shards: 3,
				Warn: func(m string) { warned = append(warned, m) },
			})
			if told := strings.Contains(strings.Join(warned, "\n"), "notify-keyspace-events"); told != (wake == WakeKeyspace) {
				t.Errorf("warned of %q", warned)
			}
			ctx := context.Background()
			queue := "orders-" + string(wake)
			many(t, s, queue, 50, func(i int) store.NewTask { return store.NewTask{ID: fmt.Sprint(i)} })
			settings, err := s.Settings(ctx, queue)
			must(t, err)
			_, err = s.PutSettings(ctx, queue, settings)
			must(t, err)
			settleAll(t, s, drainAll(t, s, queue, time.Minute), store.Acked)
			if st, err := s.Stats(ctx, queue); err != nil || st != (store.Stats{}) {
				t.Errorf("left: %+v, %v", st, err)
			}
		})
	}
}
