package duetimetest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/duetimetest"
)

func TestHalfAnHourIsExactAndTakesNoTime(t *testing.T) {
	begin := time.Now()
	duetimetest.Run(t, func(t *testing.T, client *duetime.Client) {
		shop := NewShop(client)
		duetimetest.Work(t, shop.Worker())
		for _, order := range []string{"4711", "4712"} {
			if err := shop.Order(t.Context(), order); err != nil {
				t.Fatal(err)
			}
		}
		duetimetest.Advance(10 * time.Minute)
		if err := shop.Pay(t.Context(), "4712"); err != nil {
			t.Fatal(err)
		}
		duetimetest.Advance(20*time.Minute - time.Nanosecond)
		if state := shop.State("4711"); state != "ordered" {
			t.Errorf("a nanosecond before its time the order is %s", state)
		}
		duetimetest.Advance(time.Nanosecond)
		if state := shop.State("4711"); state != "cancelled" {
			t.Errorf("at its time the order is %s", state)
		}
		duetimetest.Advance(365 * 24 * time.Hour)
		if state := shop.State("4712"); state != "paid" {
			t.Errorf("the one that was paid is %s", state)
		}
	})
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("a year took %v", took)
	}
}

func TestWorkerOutlivesFailuresUntilTheTestEnds(t *testing.T) {
	ended := false
	t.Run("bubble", func(t *testing.T) {
		duetimetest.Run(t, func(t *testing.T, client *duetime.Client) {
			w := duetime.NewWorker(client, nil)
			w.Handle("q", func(_ context.Context, task *duetime.Task) error {
				if task.Attempt < 5 {
					return errors.New("not yet")
				}
				ended = true
				return nil
			})
			duetimetest.Work(t, w)
			if _, err := client.Schedule(t.Context(), "q", duetime.NewTask{}); err != nil {
				t.Fatal(err)
			}
			duetimetest.Advance(time.Hour)
		})
	})
	if !ended {
		t.Error("the task did not succeed")
	}
}

// runTest runs a test within an example, whose output must be the same whether or
// not the tests are run with -v.
func runTest(f func(*testing.T)) {
	verbose := flag.Lookup("test.v").Value.String()
	_ = flag.Set("test.v", "false")
	defer func() { _ = flag.Set("test.v", verbose) }()
	all := func(string, string) (bool, error) { return true, nil }
	if !testing.RunTests(all, []testing.InternalTest{{Name: "Test", F: f}}) {
		fmt.Println("the test failed")
	}
}
