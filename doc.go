// Package duetime runs tasks later: on time, once, and never lost.
//
// Nearly everyone needs three functions: [Client.Schedule] to say what is to be
// done and when, [Client.Cancel] to take it back, and [Worker.Handle] to do it. A
// whole program:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"time"
//
//		"github.com/duetime/duetime"
//		"github.com/duetime/duetime/store/diskstore"
//	)
//
//	func main() {
//		st, err := diskstore.Open("tasks", nil) // a directory
//		if err != nil {
//			panic(err)
//		}
//		client := duetime.NewClient(st, nil)
//		defer client.Close()
//		worker := duetime.NewWorker(client, nil)
//		worker.Handle("orders", func(_ context.Context, t *duetime.Task) error {
//			fmt.Println("order", t.ID, "was not paid: cancelled", t.Lateness(), "after its time")
//			worker.Stop() // a real program goes on until it is told to end
//			return nil
//		})
//		if _, err := client.Schedule(context.Background(), "orders", duetime.NewTask{ID: "4711", Delay: time.Second}); err != nil {
//			panic(err)
//		}
//		fmt.Println("stopped:", worker.Run(context.Background()))
//	}
//
// When Schedule has returned without an error, the task survives the end of the
// program, a kill -9 and a power cut. It is handed out once its time has come, by
// the store's clock never before, and mostly well under a millisecond after. It
// runs once, unless its worker dies or is cut off before it could say that it was
// done: then it is handed out again, and says so in [Task.Attempt].
//
// A [Handler] that returns an error has its task again later, after the queue's
// backoff; see [RetryIn], [Snooze] and [Dead] for other wishes. [QueueOf] gives
// queues whose payloads are values of a Go type. Package duetimetest lets tests
// see what happens thirty minutes later without waiting for it.
//
// A [Client] works on any store: package diskstore is a directory on disk, package
// remotestore a duetime server, package memstore is for tests.
package duetime
