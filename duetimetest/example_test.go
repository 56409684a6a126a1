package duetimetest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/duetimetest"
)

// Shop is the program to be tested: an order that is not paid within half an hour
// is cancelled.
type Shop struct {
	client *duetime.Client
	mu     sync.Mutex
	orders map[string]string // number → state
}

func NewShop(client *duetime.Client) *Shop {
	return &Shop{client: client, orders: make(map[string]string)}
}

func (s *Shop) Order(ctx context.Context, number string) error {
	s.set(number, "ordered")
	_, err := s.client.Schedule(ctx, "order-timeout", duetime.NewTask{ID: number, Delay: 30 * time.Minute})
	return err
}

func (s *Shop) Pay(ctx context.Context, number string) error {
	s.set(number, "paid")
	return s.client.Cancel(ctx, "order-timeout", number)
}

func (s *Shop) Worker() *duetime.Worker {
	w := duetime.NewWorker(s.client, nil)
	w.Handle("order-timeout", func(_ context.Context, t *duetime.Task) error {
		if s.State(t.ID) == "ordered" {
			s.set(t.ID, "cancelled")
		}
		return nil
	})
	return w
}

func (s *Shop) State(number string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders[number]
}

func (s *Shop) set(number, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[number] = state
}

// In a test file of your own this is func TestOrderTimesOut(t *testing.T).
func Example() {
	testOrderTimesOut := func(t *testing.T) {
		duetimetest.Run(t, func(t *testing.T, client *duetime.Client) {
			shop := NewShop(client)
			duetimetest.Work(t, shop.Worker())
			begin := time.Now()
			_ = shop.Order(t.Context(), "4711")

			duetimetest.Advance(29 * time.Minute)
			fmt.Println(time.Since(begin), shop.State("4711"))
			duetimetest.Advance(time.Minute)
			fmt.Println(time.Since(begin), shop.State("4711"))
		})
	}
	runTest(testOrderTimesOut)
	// Output:
	// 29m0s ordered
	// 30m0s cancelled
}
