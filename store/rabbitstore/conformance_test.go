package rabbitstore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

// broker is the one that most tests share.
var broker struct {
	server *testserver.RabbitMQServer
	err    error
}

func TestMain(m *testing.M) {
	if os.Getenv("DUETIME_TEST_WORKER") != "" {
		fmt.Fprintln(os.Stderr, workerProcess())
		os.Exit(1)
	}
	flag.Parse()
	// The tests that are for this wait more than they work.
	_ = flag.Set("test.parallel", "4")
	broker.server, broker.err = testserver.StartRabbitMQ(nil)
	code := m.Run()
	if broker.server != nil {
		broker.server.Close()
	}
	os.Exit(code)
}

var spaces atomic.Int64

// options are those of a test's own store: it shares the ladder with the others,
// and nothing else.
func options(kind QueueType) *Options {
	return &Options{QueueType: kind, Prefix: "test-" + string(kind), powers: 14, space: fmt.Sprint("s", spaces.Add(1), ".")}
}

func brokerURL(t testing.TB) string {
	t.Helper()
	if broker.err != nil {
		testserver.Need(t, "rabbitmq-server", "epmd")
		t.Fatal(broker.err)
	}
	return broker.server.URL()
}

// open opens a store that is closed, and its queues deleted, with the test.
func open(t testing.TB, opts *Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), brokerURL(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		tidy(t, s)
	})
	return s
}

// tidy deletes the queues of a test's store that is closed.
func tidy(t testing.TB, s *Store) {
	conn, err := amqp.Dial(brokerURL(t))
	if err != nil {
		t.Errorf("tidy up: %v", err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Errorf("tidy up: %v", err)
		return
	}
	for _, queue := range s.conf.names() {
		_, _ = ch.QueueDelete(s.topology.ready(queue), false, false, true)
		_, _ = ch.QueueDelete(s.topology.dead(queue), false, false, true)
	}
	_, _ = ch.QueueDelete(s.topology.log(), false, false, false)
}

func harness(kind QueueType) storetest.Harness {
	return storetest.Harness{
		Open: func(t testing.TB) *storetest.Instance {
			opts := options(kind)
			st := open(t, opts)
			in := &storetest.Instance{Store: st}
			in.Reopen = func(t testing.TB) store.Store {
				st.crash()
				st = open(t, opts)
				return st
			}
			return in
		},
		MaxWait: 3 * time.Second,
		Late:    150 * time.Millisecond, // parallel tests on a small machine
	}
}

// crash ends a store as kill -9 would: its connections are cut and it puts
// nothing in order.
func (s *Store) crash() {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	s.cancel()
	s.finish()
	s.calls.Wait()
	<-s.publish.done
	<-s.receiving.done
	s.work.Wait()
}

func TestConformance(t *testing.T) { storetest.Run(t, harness(Quorum)) }

// RabbitMQ does not tell tasks apart by id, so that a move that is repeated would
// double them: the store can not import, and says so.
func TestNoImport(t *testing.T) {
	t.Parallel()
	s := open(t, options(Quorum))
	if can, err := store.CanImport(context.Background(), s); can || err != nil {
		t.Errorf("can import: %v, %v", can, err)
	}
	if _, err := store.ImporterOf(context.Background(), s); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "rabbit") {
		t.Errorf("importer: %v", err)
	}
}
