package rabbitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// TestBroker is what happens to a broker, and so needs one of its own. A start
// takes long: it is one broker, and what is tested goes on with it where the one
// before has left it.
func TestBroker(t *testing.T) {
	t.Parallel() // it mostly waits
	server := testserver.RabbitMQ(t, &testserver.RabbitMQOptions{
		// What comes due while a broker is down is held up when it starts (see
		// docs/operations.md), for three minutes unless it is told otherwise.
		Erlang: "-rabbit dead_letter_worker_publisher_confirm_timeout 2000",
	})
	s := mustOpen(t, server.URL(), ownOptions(Quorum))
	for _, part := range []struct {
		name string
		run  func(*testing.T, *testserver.RabbitMQServer, *Store)
	}{
		{"alarm", testAlarm},
		{"down when the wait runs out", testDownWhenTheWaitRunsOut},
		{"killed", testKilled},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, server, s) }) {
			return // the next would fail too, and not say why
		}
	}
}

// A node that is short of memory takes nothing: Schedule waits as long as it may,
// then says why. What is in hand can be acked meanwhile.
func testAlarm(t *testing.T, server *testserver.RabbitMQServer, s *Store) {
	scheduleOne(t, s, "1", 0)
	l := takeOne(t, s, 10*time.Second)
	if _, err := server.Ctl("set_vm_memory_high_watermark", "0.000001"); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := range 5 { // the first ones may pass before the broker says so
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = s.Schedule(ctx, []store.NewTask{{Queue: "later", ID: fmt.Sprint("blocked", i), Delay: time.Hour}})
		cancel()
		if errors.Is(err, store.ErrFull) {
			break
		}
	}
	if !errors.Is(err, store.ErrFull) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("schedule while there is an alarm: %v, want ErrFull, and why", err)
	}
	settleOne(t, s, l, store.Ack, store.Acked)
	waited := make(chan error, 1)
	go func() {
		_, err := s.Schedule(context.Background(), []store.NewTask{{Queue: "orders", ID: "patient"}})
		waited <- err
	}()
	if _, err := server.Ctl("set_vm_memory_high_watermark", "0.6"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waited:
		if err != nil {
			t.Fatalf("schedule that waited for the alarm to end: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("schedule still waits though the alarm is over")
	}
	settleOne(t, s, takeOne(t, s, 10*time.Second), store.Ack, store.Acked)
}

// A wait that runs out while the broker is down: all come after it starts, none
// early, also those whose queue is not there any more by then (B12). Meanwhile
// calls say within a moment that there is no broker, and all goes on by itself
// when it is back.
func testDownWhenTheWaitRunsOut(t *testing.T, server *testserver.RabbitMQServer, s *Store) {
	const tasks, gone = 100, 20
	log := history.NewLog("worker", time.Now)
	st := history.Record(s, log)
	scheduleMany(t, st, "gone", gone, 2*time.Second, 2*time.Second+1)
	scheduleMany(t, st, "orders", tasks, 2*time.Second, 2*time.Second+1)
	due := time.Now().Add(2 * time.Second)
	remove(t, s, s.topology.ready("gone"))
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	log.Crash()
	start := time.Now()
	_, err := s.Schedule(context.Background(), []store.NewTask{{Queue: "orders", ID: "while it is down"}})
	if err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("schedule without a broker: %v after %v", err, time.Since(start))
	}
	if _, err := s.ClaimWait(context.Background(), store.ClaimRequest{Queue: "orders", Max: 1}, time.Minute); err == nil {
		t.Error("claim without a broker: no error")
	}
	time.Sleep(time.Until(due)) // a moment after the wait, not a wait for something
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done atomic.Int64
	go work(ctx, st, "orders", 20, &done)
	go work(ctx, st, "gone", 20, &done)
	for end := time.Now().Add(60 * time.Second); done.Load() < tasks+gone && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		_, _ = s.rescue(ctx) // as it does every ten seconds
	}
	drained(t, s, time.Second, &done)
	log.FinalEmpty()
	cancel()
	checkHistory(t, log.Lines(), tasks+gone, history.DoublesAll)
}

// The broker is killed in the middle of 2,000 waits, twice: with messages on the
// ladder, in hand, between rungs and on their way back, and some whose wait runs
// out while it is down.
func testKilled(t *testing.T, server *testserver.RabbitMQServer, s *Store) {
	const tasks = 2000
	log := history.NewLog("worker", time.Now)
	st := history.Record(s, log)
	scheduleMany(t, st, "orders", tasks, 500*time.Millisecond, 6*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done atomic.Int64
	for range 3 {
		go work(ctx, st, "orders", 20, &done)
	}
	for range 2 {
		time.Sleep(1500 * time.Millisecond) // a moment in the middle, not a wait for something
		server.Kill()
		log.Crash()
		time.Sleep(500 * time.Millisecond)
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	drained(t, s, 8*time.Second, &done)
	log.FinalEmpty()
	cancel()
	checkHistory(t, log.Lines(), tasks, history.DoublesAll)
}

// remove deletes one of RabbitMQ's queues, as somebody might by hand.
func remove(t *testing.T, s *Store, name string) {
	t.Helper()
	if err := s.topology.withChannel(context.Background(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// No queue of ours may end while there are messages in it, nor drop any: not for
// want of consumers (x-expires), nor for its length; and messages end on the
// ladder only (B12).
func TestNoQueueExpires(t *testing.T) {
	t.Parallel()
	opts := ownOptions(Quorum)
	opts.Prefix, opts.powers = "test-lasting", allPowers
	s := open(t, opts)
	scheduleOne(t, s, "1", time.Hour)
	list, err := broker.server.Ctl("--no-table-headers", "list_queues", "name", "arguments")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(list) {
		name, arguments, _ := strings.Cut(line, "\t")
		if !strings.HasPrefix(name, "test-lasting.") {
			continue
		}
		found++
		for _, bad := range []string{"x-expires", "x-max-", "auto-delete"} {
			if strings.Contains(arguments, bad) {
				t.Errorf("queue %s has %s: %s", name, bad, arguments)
			}
		}
		if strings.Contains(arguments, "x-message-ttl") != strings.Contains(name, ".wait.") {
			t.Errorf("queue %s: %s", name, arguments)
		}
	}
	if want := len(newLadder(allPowers)) + 4; found != want { // ready, dead, strays and the log
		t.Errorf("%d queues, want %d:\n%s", found, want, list)
	}
}
