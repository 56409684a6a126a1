package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// deployments are what most tests of several processes run on.
func deployments(t *testing.T, f func(t *testing.T, o Options)) {
	t.Run("one server", func(t *testing.T) { f(t, Options{Addrs: []string{sharedServer(t).Addr}}) })
	t.Run("cluster", func(t *testing.T) { f(t, Options{Addrs: sharedCluster(t).Addrs(), Cluster: true}) })
}

// A process that waits is told when another one schedules something, by either
// way of telling.
func TestWakesAnotherProcess(t *testing.T) {
	t.Parallel()
	deployments(t, func(t *testing.T, o Options) {
		for _, wake := range []Wake{WakePubSub, WakeKeyspace} {
			t.Run(string(wake), func(t *testing.T) {
				t.Parallel() // it mostly waits
				o := o
				o.Wake, o.Prefix = wake, nextPrefix()
				waiting, other := open(t, o), open(t, o)
				ctx := context.Background()
				id := 0
				schedule := func(delay time.Duration) {
					id++
					r, err := other.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: string(rune('a' + id)), Delay: delay}})
					if err != nil || r[0].Outcome != store.Created {
						t.Fatal(r, err)
					}
				}
				schedule(time.Hour)
				ticks, stop := waiting.Wake("orders")
				defer stop()
				quiet(ticks)
				for n := range 5 {
					schedule(time.Hour - time.Duration(n+1)*time.Minute)
					select {
					case <-ticks:
					case <-time.After(10 * time.Second):
						t.Fatalf("%d: nothing was heard of a task that is due before all others", n)
					}
					quiet(ticks)
				}
				if o.Cluster {
					return // what is later than all others may be the first of its shard
				}
				schedule(2 * time.Hour)
				select {
				case <-ticks:
					t.Error("a tick for a task that is due after others")
				case <-time.After(300 * time.Millisecond):
				}
			})
		}
	})
}

// quiet waits until no tick has come for a while, such as those that come with a
// subscription.
func quiet(ticks <-chan struct{}) {
	for {
		select {
		case <-ticks:
		case <-time.After(500 * time.Millisecond):
			return
		}
	}
}
