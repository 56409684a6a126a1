// Command ordertimeout cancels orders that are not paid in time, and survives
// being away: a shop comes back after half an hour in which it could do nothing,
// with 100 orders whose time is over and 100 whose time is about to be, of which
// half are paid just in time.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store/diskstore"
)

// order is the payload of a timeout: whatever the handler needs to know.
type order struct {
	Number int
	Buyer  string
}

var timeouts = duetime.QueueOf[order]("order-timeout", nil)

func main() {
	soon := flag.Duration("soon", 2*time.Second, "when the second hundred is due")
	flag.Parse()
	dir, err := os.MkdirTemp("", "ordertimeout")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), os.Stdout, dir, *soon); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, dir string, soon time.Duration) error {
	st, err := diskstore.Open(dir, nil)
	if err != nil {
		return err
	}
	client := duetime.NewClient(st, nil)
	defer client.Close()
	shop := newShop()

	// Each order's timeout has the order's number as its id, so that it can be
	// cancelled by it, and so that doing this twice would change nothing.
	place := func(number int, due time.Time) error {
		shop.set(number, "ordered")
		_, err := timeouts.Schedule(ctx, client, order{Number: number, Buyer: fmt.Sprintf("buyer %d", number%7)},
			duetime.NewTask{ID: id(number), Due: due})
		return err
	}
	now := time.Now()
	for number := range 100 {
		if err := place(number, now.Add(-30*time.Minute+time.Duration(number)*time.Millisecond)); err != nil {
			return err
		}
	}
	for number := 100; number < 200; number++ {
		if err := place(number, now.Add(soon+time.Duration(number)*time.Millisecond)); err != nil {
			return err
		}
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worker := duetime.NewWorker(client, nil)
	timeouts.Handle(worker, func(_ context.Context, t *duetime.Task, o order) error {
		// A task may come twice when a worker dies: look before acting.
		if shop.cancel(o.Number) {
			fmt.Fprintf(out, "order %d of %s was not paid: cancelled, %v after its time\n", o.Number, o.Buyer, t.Lateness().Round(time.Microsecond))
		}
		if shop.count("ordered") == 0 {
			stop() // nothing is left to wait for
		}
		return nil
	})

	// Meanwhile every second buyer pays.
	for number := 100; number < 200; number += 2 {
		shop.set(number, "paid")
		if err := client.Cancel(ctx, timeouts.Name(), id(number)); err != nil {
			return err
		}
	}
	if err := worker.Run(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d cancelled, %d paid\n", shop.count("cancelled"), shop.count("paid"))
	return err
}

func id(number int) string { return fmt.Sprintf("order/%d", number) }

// shop stands in for the database of a real one.
type shop struct {
	mu     sync.Mutex
	orders map[int]string
}

func newShop() *shop { return &shop{orders: make(map[int]string)} }

func (s *shop) set(number int, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[number] = state
}

// cancel cancels an order that is not paid, and reports whether it did.
func (s *shop) cancel(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orders[number] != "ordered" {
		return false
	}
	s.orders[number] = "cancelled"
	return true
}

func (s *shop) count(state string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, have := range s.orders {
		if have == state {
			n++
		}
	}
	return n
}
