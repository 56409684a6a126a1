package memstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duetime/duetime/store"
)

// With no clock given, the store lives in the time of testing/synctest: half an
// hour passes in no time.
func TestHalfAnHourUnderSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := New(nil)
		defer s.Close()
		claim := []store.ClaimRequest{{Queue: "orders", Max: 10}}
		if _, err := s.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: "1", Delay: 30 * time.Minute}}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Claim(ctx, claim)
		if err != nil {
			t.Fatal(err)
		}
		if len(got[0].Tasks) != 0 || got[0].Next.Sub(got[0].Now) != 30*time.Minute {
			t.Fatalf("too early: %d tasks, next in %v", len(got[0].Tasks), got[0].Next.Sub(got[0].Now))
		}
		time.Sleep(30 * time.Minute)
		if got, err = s.Claim(ctx, claim); err != nil || len(got[0].Tasks) != 1 {
			t.Fatalf("after half an hour: %+v, %v", got, err)
		}
	})
}
