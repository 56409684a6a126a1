// Command unpaidorders cancels orders that are not paid in time, with the tasks in
// RabbitMQ. There a task can not be called back once it is scheduled; so paying
// does not cancel the timeout, but the timeout's handler looks whether the order
// was paid.
//
//	unpaidorders amqp://guest:guest@127.0.0.1:5672/
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store/rabbitstore"
)

// order is the payload of a timeout.
type order struct {
	Number int
}

const orders = 20

var timeouts = duetime.QueueOf[order]("order-timeout", nil)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: unpaidorders amqp://USER:PASSWORD@HOST:PORT/")
	}
	if err := run(context.Background(), os.Stdout, os.Args[1], 2*time.Second); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string, timeout time.Duration) error {
	st, err := rabbitstore.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	client := duetime.NewClient(st, nil)
	defer client.Close()
	shop := &shop{paid: make(map[int]bool)}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worker := duetime.NewWorker(client, nil)
	timeouts.Handle(worker, func(_ context.Context, _ *duetime.Task, o order) error {
		paid, first, left := shop.timeout(o.Number)
		switch {
		case !first: // it came twice, which a worker that dies can cause
		case paid:
			fmt.Fprintf(out, "order %d is paid\n", o.Number)
		default:
			fmt.Fprintf(out, "order %d was not paid: cancelled\n", o.Number)
		}
		if left == 0 {
			stop()
		}
		return nil
	})

	for number := range orders {
		if _, err := timeouts.Schedule(ctx, client, order{number}, duetime.NewTask{ID: fmt.Sprint(number), Delay: timeout}); err != nil {
			return err
		}
	}
	for number := 0; number < orders; number += 2 { // every second buyer pays
		shop.pay(number)
	}
	return worker.Run(ctx)
}

// shop stands in for the database of a real one.
type shop struct {
	mu   sync.Mutex
	paid map[int]bool
	over []int // orders whose time has come
}

func (s *shop) pay(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paid[number] = true
}

// timeout says whether an order was paid when its time has come, whether that is
// for the first time, and how many are left.
func (s *shop) timeout(number int) (paid, first bool, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = true
	for _, n := range s.over {
		first = first && n != number
	}
	if first {
		s.over = append(s.over, number)
	}
	return s.paid[number], first, orders - len(s.over)
}
