package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/duetime/duetime"
)

// crew starts workers, the last two of them shell loops of curl where there is
// curl.
func (f *fleet) crew(n int) {
	f.t.Helper()
	if _, err := exec.LookPath("curl"); err == nil {
		f.workWithCurl()
		f.workWithCurl()
		n -= 2
	}
	for range n {
		f.work("--concurrency", "4")
	}
}

func (f *fleet) scheduleAll(client *duetime.Client, tasks []duetime.NewTask) {
	f.t.Helper()
	answers, err := client.ScheduleMany(context.Background(), "q", tasks)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, a := range answers {
		if a.Outcome != duetime.OutcomeCreated {
			f.t.Fatalf("%s: %s, %v", a.ID, a.Outcome, a.Err)
		}
	}
}

// ranOnce waits until the queue has nothing but so many tasks that are far off,
// and checks that the tasks that want says, and no others, ran once each and not
// early.
func (f *fleet) ranOnce(client *duetime.Client, want map[string]bool, far int64) map[string]aRun {
	f.t.Helper()
	f.poll("the queue to be done", func() bool {
		stats, err := client.Stats(context.Background(), "q")
		if err != nil {
			f.t.Fatal(err)
		}
		return stats.Ready+stats.Leased == 0 && stats.Scheduled == far
	})
	ran := make(map[string]aRun)
	for _, r := range f.runs() {
		if _, again := ran[r.ID]; again {
			f.t.Errorf("%s ran twice", r.ID)
		}
		if !want[r.ID] {
			f.t.Errorf("%s ran and should not have", r.ID)
		}
		if r.ClaimedAt.Before(r.DueAt) {
			f.t.Errorf("early: %+v", r)
		}
		ran[r.ID] = r
	}
	for id := range want {
		if _, ok := ran[id]; !ok {
			f.t.Errorf("%s did not run", id)
		}
	}
	return ran
}

// 100 orders timed out half an hour ago and 100 do in a moment, of which half are
// paid before: 150 run, each once.
func TestOrderTimeout(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	client := f.client()
	var tasks []duetime.NewTask
	want := make(map[string]bool)
	soon := time.Now().Add(3 * time.Second)
	for i := range 200 {
		due := soon.Add(time.Duration(i) * 5 * time.Millisecond)
		if i < 100 {
			due = time.Now().Add(-30*time.Minute + time.Duration(i)*time.Second)
		}
		id := fmt.Sprintf("order-%03d", i)
		tasks = append(tasks, duetime.NewTask{ID: id, Due: due})
		want[id] = i < 100 || i%2 == 0
	}
	f.scheduleAll(client, tasks)
	f.crew(4)
	paid := 0
	for _, task := range tasks[100:] {
		if !want[task.ID] {
			switch err := client.Cancel(context.Background(), "q", task.ID); {
			case err == nil:
				delete(want, task.ID)
				paid++
			case errors.Is(err, duetime.ErrNotFound) || errors.Is(err, duetime.ErrRunning):
				want[task.ID] = true // paid too late: this machine is busy
			default:
				t.Fatal(err)
			}
		}
	}
	if paid == 0 {
		t.Error("no order was paid in time")
	}
	f.ranOnce(client, want, 0)
}

// Four articles, at one second's distance, and ten consumers: each goes out once,
// on time, by some consumer.
func TestScheduledPublishing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	client := f.client()
	f.crew(10)
	var tasks []duetime.NewTask
	want := make(map[string]bool)
	for i := range 4 {
		id := fmt.Sprintf("article-%d", i)
		tasks = append(tasks, duetime.NewTask{ID: id, Delay: time.Duration(i+1) * time.Second})
		want[id] = true
	}
	f.scheduleAll(client, tasks)
	for id, r := range f.ranOnce(client, want, 0) {
		if late := r.ClaimedAt.Sub(r.DueAt); late > time.Second {
			t.Errorf("%s went out %v late", id, late)
		}
	}
}

// The release setting changes from immediate to every second, to a cron
// expression and back, while workers wait and tasks come due.
func TestReleaseChangedWhileRunning(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	client := f.client()
	f.crew(4)
	phase := func(name, release string, letOut func(time.Time) bool) {
		t.Helper()
		if _, err := client.UpdateSettings(context.Background(), "q", func(s *duetime.Settings) { s.Release = release }); err != nil {
			t.Fatal(err)
		}
		var tasks []duetime.NewTask
		want := make(map[string]bool)
		for _, r := range f.runs() {
			want[r.ID] = true
		}
		for i := range 20 {
			id := fmt.Sprintf("%s-%d", name, i)
			tasks = append(tasks, duetime.NewTask{ID: id, Delay: time.Duration(i) * 70 * time.Millisecond})
			want[id] = true
		}
		f.scheduleAll(client, tasks)
		ran := f.ranOnce(client, want, 0)
		for _, task := range tasks {
			r := ran[task.ID]
			at := r.ClaimedAt.Truncate(time.Second)
			if letOut != nil && (at.Before(r.DueAt) || !letOut(at)) {
				t.Errorf("release %q let out at %v what was due at %v", release, r.ClaimedAt, r.DueAt)
			}
		}
	}
	phase("at-once", "immediate", nil)
	phase("seconds", "every 1s", func(time.Time) bool { return true })
	phase("cron", "*/2 * * * * *", func(at time.Time) bool { return at.Second()%2 == 0 })
	phase("again", "immediate", nil)
}

// Delays from ten milliseconds to ten years, scheduled in random order: the near
// ones run on time, the far ones wait.
func TestFarAndNear(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	client := f.client()
	f.crew(4)
	var tasks []duetime.NewTask
	want := make(map[string]bool)
	const far = 100
	for i := range far {
		near := fmt.Sprintf("near-%d", i)
		want[near] = true
		tasks = append(tasks,
			duetime.NewTask{ID: near, Delay: 10*time.Millisecond + rand.N(3*time.Second)},
			duetime.NewTask{ID: fmt.Sprintf("far-%d", i), Delay: time.Hour + rand.N(10*365*24*time.Hour)})
	}
	rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	f.scheduleAll(client, tasks)
	for id, r := range f.ranOnce(client, want, far) {
		if late := r.ClaimedAt.Sub(r.DueAt); late > 2*time.Second {
			t.Errorf("%s was %v late", id, late)
		}
	}
}
