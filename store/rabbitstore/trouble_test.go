package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

func scheduleOne(t *testing.T, s *Store, id string, delay time.Duration) {
	t.Helper()
	r, err := s.Schedule(context.Background(), []store.NewTask{{Queue: "orders", ID: id, Delay: delay}})
	if err != nil || r[0].Outcome != store.Created {
		t.Fatalf("schedule %s: %+v, %v", id, r, err)
	}
}

// takeOne waits for a task.
func takeOne(t *testing.T, s *Store, wait time.Duration) store.Lease {
	t.Helper()
	for end := time.Now().Add(wait); time.Now().Before(end); {
		r, err := s.ClaimWait(context.Background(), store.ClaimRequest{Queue: "orders", Max: 1, Lease: time.Minute}, time.Until(end))
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if len(r.Tasks) > 0 {
			return r.Tasks[0]
		}
	}
	t.Fatalf("no task came within %v", wait)
	panic("not reached")
}

func settleOne(t *testing.T, s *Store, l store.Lease, a store.Action, want store.Outcome) {
	t.Helper()
	r, err := s.Settle(context.Background(), []store.Settlement{{Receipt: l.Receipt, Action: a}})
	if err != nil || r[0].Outcome != want {
		t.Fatalf("%v of %s: %+v, %v; want %v", a, l.ID, r, err, want)
	}
}

// 6 h, 60 s, 1 s and 500 ms, scheduled in this order, come out at 0.5, 1 and 60 s:
// nothing waits behind something longer.
func TestLongOnesDoNotHoldUpShortOnes(t *testing.T) {
	t.Parallel()
	opts := options(Quorum)
	opts.Prefix, opts.powers = "test-tall", allPowers
	s := open(t, opts)
	start := time.Now()
	for _, delay := range []time.Duration{6 * time.Hour, time.Minute, time.Second, 500 * time.Millisecond} {
		scheduleOne(t, s, delay.String(), delay)
	}
	want := []time.Duration{500 * time.Millisecond, time.Second}
	if longRun {
		want = append(want, time.Minute)
	}
	for _, delay := range want {
		l := takeOne(t, s, delay+10*time.Second)
		after := time.Since(start)
		t.Logf("%s came after %v", l.ID, after)
		if l.ID != delay.String() || after < delay || after > delay+3*time.Second {
			t.Errorf("task %s came after %v, want %v", l.ID, after, delay)
		}
		settleOne(t, s, l, store.Ack, store.Acked)
	}
}

// A connection that is cut is made again; what was leased comes again, counted as
// lost, and its receipt is stale.
func TestConnectionIsCut(t *testing.T) {
	t.Parallel()
	proxy := testserver.Proxy(t, strings.TrimSuffix(strings.TrimPrefix(brokerURL(t), "amqp://guest:guest@"), "/"))
	opts := options(Quorum)
	s, err := Open(context.Background(), "amqp://guest:guest@"+proxy.Addr+"/", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		tidy(t, s)
	})
	scheduleOne(t, s, "1", 0)
	l := takeOne(t, s, 10*time.Second)
	proxy.DropConnections()
	again := takeOne(t, s, 20*time.Second)
	if again.ID != "1" || again.Lost != 1 || again.Failures != 0 {
		t.Errorf("got %s, lost %d, failures %d; want 1, once, 0", again.ID, again.Lost, again.Failures)
	}
	settleOne(t, s, l, store.Ack, store.Stale)
	settleOne(t, s, again, store.Ack, store.Acked)
}

// Queues that are deleted by hand are made again, and what was on its way to them
// is not lost with them: be it a task's own queue, or a rung further down.
func TestQueueIsDeleted(t *testing.T) {
	t.Parallel()
	opts := ownOptions(Quorum)
	opts.Prefix = "test-torn"
	s := open(t, opts)
	rescued := func() {
		t.Helper()
		for end := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			n, err := s.rescue(context.Background()) // as it does every ten seconds
			if err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the task on the ladder is not among the strays")
			}
		}
	}
	for _, which := range []string{"its own", "a rung"} {
		scheduleOne(t, s, which, 1500*time.Millisecond)
		due := time.Now().Add(1500 * time.Millisecond)
		name := s.topology.ready("orders")
		if which == "a rung" {
			rungs := s.topology.ladder.walk(1500 * time.Millisecond)
			name = s.topology.rung(rungs[len(rungs)-1])
			if len(rungs) < 2 {
				t.Fatalf("takes the rungs %v", rungs)
			}
		}
		remove(t, s, name)
		rescued()
		l := takeOne(t, s, 10*time.Second)
		if l.ID != which || l.Lost != 0 || time.Now().Before(due.Add(-10*time.Millisecond)) {
			t.Errorf("got %s, lost %d, %v before it was due", l.ID, l.Lost, time.Until(due))
		}
		settleOne(t, s, l, store.Ack, store.Acked)
	}
	remove(t, s, s.topology.ready("orders"))
	scheduleOne(t, s, "at once", 0) // returned, and published again
	if l := takeOne(t, s, 10*time.Second); l.ID != "at once" {
		t.Errorf("got %s", l.ID)
	}
}

// A missing permission is told, with what to do, when the store is opened or when
// it is needed; and a user who may not declare gets on where another has.
func TestPermissions(t *testing.T) {
	t.Parallel()
	all := open(t, ownOptions(Quorum)) // the prefix of everybody who says nothing
	server := broker.server
	allow := func(configure, write, read string) {
		t.Helper()
		if _, err := server.Ctl("set_permissions", "limited", configure, write, read); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.Ctl("add_user", "limited", "secret"); err != nil {
		t.Fatal(err)
	}
	allow("", "", "")
	limited := strings.Replace(server.URL(), "guest:guest", "limited:secret", 1)
	_, err := Open(context.Background(), limited, ownOptions(Quorum))
	if err == nil || !strings.Contains(err.Error(), "set_permissions") || strings.Contains(err.Error(), "secret") {
		t.Errorf("open without permissions: %v", err)
	}
	scheduleOne(t, all, "1", 0)
	allow("", `^(amq\.default|duetime\..*)$`, `^duetime\..*$`)
	s := mustOpen(t, limited, ownOptions(Quorum))
	if l := takeOne(t, s, 10*time.Second); l.ID != "1" {
		t.Errorf("got %s", l.ID)
	}
	scheduleOne(t, s, "2", 0)
	_, err = s.Schedule(context.Background(), []store.NewTask{{Queue: "new", ID: "1"}})
	if err == nil || !strings.Contains(err.Error(), "set_permissions") {
		t.Errorf("schedule into a new queue without configure: %v", err)
	}
	allow("", "", `^duetime\..*$`)
	s = mustOpen(t, limited, ownOptions(Quorum))
	_, err = s.Schedule(context.Background(), []store.NewTask{{Queue: "orders", ID: "3"}})
	if err == nil || !strings.Contains(err.Error(), "set_permissions") || !strings.Contains(err.Error(), "amq.default") {
		t.Errorf("schedule without write: %v", err)
	}
	_, err = Open(context.Background(), strings.Replace(server.URL(), "guest:guest", "guest:wrong", 1), ownOptions(Quorum))
	if err == nil || !strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("open with a wrong password: %v", err)
	}
	_, err = Open(context.Background(), server.URL(), ownOptions(Classic))
	if err == nil || !strings.Contains(err.Error(), "queue type") {
		t.Errorf("open with another queue type: %v", err)
	}
}

// The broker closes a channel, as it does when a message is held for longer than
// consumer_timeout: the lease is over and the task comes again.
func TestChannelIsClosed(t *testing.T) {
	t.Parallel()
	s := open(t, options(Quorum))
	scheduleOne(t, s, "1", 0)
	l := takeOne(t, s, 10*time.Second)
	lane := s.lane("orders")
	lane.mu.Lock()
	var src *source
	for _, held := range lane.leases {
		src = held.src
	}
	lane.mu.Unlock()
	_ = src.channel.Ack(1<<40, false) // there is no such message: the broker closes the channel
	again := takeOne(t, s, 15*time.Second)
	if again.ID != "1" || again.Lost != 1 {
		t.Errorf("got %s, lost %d", again.ID, again.Lost)
	}
	settleOne(t, s, l, store.Ack, store.Stale)
}

// A message that somebody else put into a queue is set aside among the dead and
// blocks nothing; who redrives it gets it as a task.
func TestForeignMessage(t *testing.T) {
	t.Parallel()
	s := open(t, options(Quorum))
	scheduleOne(t, s, "0", time.Hour)
	letters := []*letter{{key: s.topology.ready("orders"), message: amqp.Publishing{Body: []byte("hello")}}}
	if err := s.publisher.send(context.Background(), letters); err != nil || letters[0].err != nil {
		t.Fatal(err, letters[0].err)
	}
	scheduleOne(t, s, "1", 0)
	if l := takeOne(t, s, 10*time.Second); l.ID != "1" {
		t.Errorf("got %s", l.ID)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		stats, err := s.Stats(context.Background(), "orders")
		if err == nil && stats.Dead == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("stats %+v, %v: want one dead", stats, err)
		}
	}
	if n, err := s.Redrive(context.Background(), store.RedriveRequest{Queue: "orders", All: true}); n != 1 || err != nil {
		t.Errorf("redrive of a foreign message: %d, %v", n, err)
	}
	if l := takeOne(t, s, 10*time.Second); string(l.Payload) != "hello" || !strings.HasPrefix(l.ID, "foreign-") || !strings.Contains(l.LastError, "not a message of duetime") {
		t.Errorf("adopted as %+v", l.Task)
	}
}

// A worker that waits has no more messages than hands, however many are ready, and
// leaves none behind when it no longer waits (B62).
func TestNoMoreThanHands(t *testing.T) {
	t.Parallel()
	s := open(t, options(Quorum))
	opts := s.opts
	other := open(t, &opts)
	var tasks []store.NewTask
	for i := range 100 {
		tasks = append(tasks, store.NewTask{Queue: "orders", ID: fmt.Sprint(i)})
	}
	if _, err := s.Schedule(context.Background(), tasks); err != nil {
		t.Fatal(err)
	}
	r, err := s.ClaimWait(context.Background(), store.ClaimRequest{Queue: "orders", Max: 10, Lease: time.Minute}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got := len(r.Tasks)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		stats, err := other.Stats(context.Background(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if int(stats.Ready) < 90 {
			t.Fatalf("%d of 100 are ready for others, one has 10 hands", stats.Ready)
		}
		if int(stats.Ready) == 100-got {
			break // those that it had and did not hand out are back
		}
		if time.Now().After(end) {
			t.Fatalf("%d of 100 are ready for others, %d were handed out", stats.Ready, got)
		}
	}
}

// Who waits for tasks of a queue that is not there yet hears at once when another
// process has made it, and does not find out when he next looks.
func TestQueueAppears(t *testing.T) {
	t.Parallel()
	s := open(t, options(Quorum))
	opts := s.opts
	other := open(t, &opts)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got := make(chan store.ClaimResult, 1)
	go func() {
		r, err := s.ClaimWait(ctx, store.ClaimRequest{Queue: "orders", Max: 1, Lease: time.Minute}, time.Minute)
		if err != nil {
			t.Errorf("claim: %v", err)
		}
		got <- r
	}()
	lane := s.lane("orders")
	for looked := false; !looked; time.Sleep(time.Millisecond) {
		lane.mu.Lock()
		if looked = !lane.absent.IsZero(); looked {
			lane.absent = time.Now().Add(time.Hour)
		}
		lane.mu.Unlock()
	}
	scheduleOne(t, other, "1", 0)
	if r := <-got; len(r.Tasks) != 1 {
		t.Errorf("got %d tasks, want the one", len(r.Tasks))
	}
}

// What RabbitMQ can not do and the program needs is refused when it opens.
func TestNeed(t *testing.T) {
	t.Parallel()
	for _, need := range lacking {
		opts := options(Quorum)
		opts.Need = []string{"settings", need}
		if _, err := Open(context.Background(), brokerURL(t), opts); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), need) {
			t.Errorf("need %s: %v", need, err)
		}
	}
	if _, err := Open(context.Background(), brokerURL(t)+"?need=redrive,cancel", nil); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("need in the URL: %v", err)
	}
	var input *store.InputError
	for _, url := range []string{"http://x", "amqp://", "amqp://guest:secret@host:99999/", "amqp://guest:secret@host/?nonsense=1", "amqp://host/?need=nonsense", "amqp://host/?queues=stream", "amqp://host/?prefix=a%20b", "amqp://u:secret@ho st/"} {
		if _, err := Open(context.Background(), url, nil); !errors.As(err, &input) || strings.Contains(err.Error(), "secret") {
			t.Errorf("open %s: %v", url, err)
		}
	}
}
