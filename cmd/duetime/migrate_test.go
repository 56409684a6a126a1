package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/duetime/duetime"
)

// TestMigrateKilled: duetime migrate is killed in the middle, more than once, and
// run again, between two servers, with a producer at the one and workers at the
// other. Each task runs once, at the destination.
func TestMigrateKilled(t *testing.T) {
	t.Parallel()
	n, kills := 4000, 1
	if long {
		n, kills = 30_000, 8
	}
	from, to := newFleet(t), newFleet(t)
	for range 3 {
		to.work("--concurrency", "8")
	}
	soon := time.Now().Add(3 * time.Second)
	from.schedule(n, func(i int) time.Time {
		if i%2 == 0 {
			return overdue(i)
		}
		return soon.Add(time.Duration(i) * time.Millisecond)
	})
	producer := from.client()
	more := 0
	produce := func() {
		for range 50 {
			id := fmt.Sprintf("task-%05d", n+more)
			if _, err := producer.Schedule(context.Background(), "q", duetime.NewTask{ID: id, Delay: time.Duration(rand.IntN(2000)) * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			more++
		}
	}
	at := to.client()
	for i := range kills {
		cmd, _ := from.start("duetime", "migrate", from.url(), to.url())
		enough := int64((i + 1) * n / (kills + 2))
		from.poll("some tasks to be moved", func() bool {
			stats, err := at.Stats(context.Background(), "q")
			if err != nil {
				t.Fatal(err)
			}
			return stats.Scheduled+stats.Ready+int64(len(to.runs())) > enough
		})
		time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
		kill(t, cmd)
		produce()
	}
	cmd := exec.Command("duetime", "migrate", from.url(), to.url())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	produce()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s%s", err, out.String(), errs.String())
	}
	t.Log(out.String())
	if repeated := to.finish(n + more); len(repeated) > 0 {
		t.Errorf("%d runs were repetitions, such as %+v", len(repeated), repeated[0])
	}
}
