// Package duetimetest tests programs that use duetime, in time that is
// make-believe: "thirty minutes later" takes microseconds and is exact.
//
//	func TestUnpaidOrderIsCancelled(t *testing.T) {
//		duetimetest.Run(t, func(t *testing.T, client *duetime.Client) {
//			shop := NewShop(client)
//			duetimetest.Work(t, shop.Worker())
//			shop.Order(t.Context(), "4711")
//			duetimetest.Advance(30 * time.Minute)
//			if shop.State("4711") != "cancelled" { … }
//		})
//	}
//
// It is testing/synctest with a store in memory. In such a bubble the clock, of
// package time and of the store, stands still while any goroutine of the test
// runs, and jumps to the next timer when all of them wait. So what waits must wait
// in a way that the bubble can see: on channels, timers and locks, not on a
// network or a process outside.
package duetimetest

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store/memstore"
)

// Run runs a test in a bubble of make-believe time that begins at midnight UTC,
// 1 January 2000. The client has an empty store in memory and logs to the test's
// log; it is closed when f returns. All goroutines that f starts must end by
// themselves or by t.Context, which ends when f has returned.
func Run(t *testing.T, f func(t *testing.T, client *duetime.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := duetime.NewClient(memstore.New(nil), &duetime.ClientOptions{
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Errorf("close the client: %v", err)
			}
		})
		f(t, client)
	})
}

// Work runs a worker until the test ends, when it is stopped in good order. The
// test fails if the worker does. Call it within Run.
func Work(t *testing.T, w *duetime.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	synctest.Wait()
}

// Advance lets so much time pass, and waits until all that became due by then has
// been done, as far as it could be without more time. Call it within Run.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
