package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// oldSystem is what the tests of import know of a hand-made scheduler that is taken
// over while it goes on.
type oldSystem struct {
	t    *testing.T
	name string   // of the queue too
	args []string // of duetime import
	// atWork is what it is made of.
	atWork

	mu  sync.Mutex
	due map[string]time.Time
	ran map[string]int // by the old consumers
}

type atWork interface {
	// produce adds n entries, with pauses between them.
	produce(n int, pause time.Duration)
	// consume runs what is due until it is to stop.
	consume(stop *atomic.Bool)
	// left says how many entries have been neither run nor taken over.
	left() int
}

func newOldSystem(t *testing.T, name string, args ...string) *oldSystem {
	return &oldSystem{t: t, name: name, args: args, due: make(map[string]time.Time), ran: make(map[string]int)}
}

// fresh is the id of another entry, due up to a second ago or up to ahead from now.
func (o *oldSystem) fresh(ahead time.Duration) (id string, due time.Time) {
	due = time.Now().Add(rand.N(ahead+time.Second) - time.Second).Truncate(time.Second).UTC()
	o.mu.Lock()
	defer o.mu.Unlock()
	id = fmt.Sprintf("%s-%05d", o.name, len(o.due))
	o.due[id] = due
	return id, due
}

// has run entries itself.
func (o *oldSystem) has(ids ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		o.ran[id]++
	}
}

// takenOver imports with --follow while producers and consumers go on; the command is
// killed in the middle, again and again.
func (o *oldSystem) takenOver(f *fleet, n, kills int, producing time.Duration) {
	o.produce(n/2, 0)
	var stop atomic.Bool
	var consumers, producer sync.WaitGroup
	for range 4 {
		consumers.Go(func() { o.consume(&stop) })
	}
	producer.Go(func() { o.produce(n-n/2, producing/time.Duration(n)) })
	time.Sleep(300 * time.Millisecond) // the old consumers have their share
	command := func() (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command("duetime", append([]string{"import"}, append(o.args, "--queue", o.name, "--follow")...)...)
		cmd.Env = append(os.Environ(), "DUETIME_STORE="+f.url())
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			o.t.Error(err)
		}
		return cmd, &said
	}
	for range kills {
		cmd, _ := command()
		time.Sleep(30*time.Millisecond + rand.N(400*time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	cmd, said := command()
	producer.Wait()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		left := o.left()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			o.t.Errorf("%s: %d entries are still where they were: %s", o.name, left, said.String())
			break
		}
	}
	stop.Store(true)
	consumers.Wait()
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		o.t.Errorf("%s: the import: %v: %s", o.name, err, said.String())
	}
}

// takeOver takes systems over while duetime's workers run what has come. Each of the
// n entries of each runs once, in the old system or in the new, not early.
func takeOver(t *testing.T, f *fleet, all []*oldSystem, n, kills int, producing time.Duration) {
	t.Helper()
	var group sync.WaitGroup
	for _, o := range all {
		_, log := f.start("duetime", "work", o.name, "--concurrency", "8")
		f.logs = append(f.logs, log)
		group.Go(func() { o.takenOver(f, n, kills, producing) })
	}
	group.Wait()
	if t.Failed() {
		return
	}
	runs := func() map[string]int {
		counts := make(map[string]int)
		for _, r := range f.runs() {
			counts[r.ID]++
		}
		return counts
	}
	f.poll("everything to have run", func() bool {
		got := len(runs())
		for _, o := range all {
			got += len(o.ran)
		}
		return got >= len(all)*n
	})
	inNew := runs()
	for _, o := range all {
		for id := range o.due {
			if o.ran[id]+inNew[id] != 1 {
				t.Errorf("%s ran %d times in the old system and %d times in the new", id, o.ran[id], inNew[id])
			}
		}
		if old := len(o.ran); old == 0 || old == n {
			t.Errorf("%s: %d of %d ran in the old system: this test shows nothing", o.name, old, n)
		} else {
			t.Logf("%s: %d of %d ran in the old system", o.name, old, n)
		}
	}
	for _, r := range f.runs() {
		for _, o := range all {
			if due, ok := o.due[r.ID]; ok && (!r.DueAt.Equal(due) || r.ClaimedAt.Before(due)) {
				t.Errorf("%s ran at %v with due time %v, was due at %v", r.ID, r.ClaimedAt, r.DueAt, due)
			}
		}
	}
}
