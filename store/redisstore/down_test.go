package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
)

// A server that is down is told of at once, for queues that were never heard of
// too, and all goes on when it is back.
func TestServerDown(t *testing.T) {
	server := testserver.Redis(t, &testserver.RedisOptions{AOF: true})
	s := open(t, Options{Addrs: []string{server.Addr}})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	schedule := func(queue string) error {
		_, err := s.Schedule(ctx, []store.NewTask{{Queue: queue, ID: "1"}})
		return err
	}
	must(t, schedule("known"))
	server.Kill()
	for _, queue := range []string{"known", "unknown"} {
		if err := schedule(queue); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("schedule into the %s queue: %v", queue, err)
		}
		if _, err := s.Stats(ctx, queue); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stats of the %s queue: %v", queue, err)
		}
		if _, err := s.Claim(ctx, []store.ClaimRequest{{Queue: queue, Max: 1}}); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claim of the %s queue: %v", queue, err)
		}
	}
	must(t, server.Restart())
	for _, queue := range []string{"known", "unknown"} {
		for schedule(queue) != nil {
			if ctx.Err() != nil {
				t.Fatal("the server is back and the store is not")
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}
