package diskstore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// TestMain plays the processes that tests start.
func TestMain(m *testing.M) {
	if role := os.Getenv("DISKSTORE_ROLE"); role != "" {
		if err := roles[role](os.Getenv("DISKSTORE_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles = map[string]func(dir string) error{"fill": fillRole, "look": lookRole}

// play runs one role in a process of its own and returns the numbers it printed,
// by name.
func play(t *testing.T, role, dir string) map[string]float64 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DISKSTORE_ROLE="+role, "DISKSTORE_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", role, err, out)
	}
	numbers := make(map[string]float64)
	for line := range strings.Lines(string(out)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "=")
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			numbers[name] = n
		}
		t.Logf("%s: %s", role, strings.TrimSpace(line))
	}
	return numbers
}

const farTasks = 5_000_000

// fillRole schedules tasks that are due over the year after next year's start,
// and dies without closing the store.
func fillRole(dir string) error {
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	start := time.Now()
	payload := make([]byte, 100)
	batch := make([]store.NewTask, 0, 1000)
	for i := range farTasks {
		due := start.Add(365*24*time.Hour + time.Duration((i*7919)%farTasks)*6*time.Second)
		batch = append(batch, store.NewTask{Queue: "far", ID: fmt.Sprintf("order-%014d", (i*104729)%farTasks), Payload: payload, Due: due})
		if len(batch) == cap(batch) {
			res, err := s.Schedule(ctx, batch)
			if err != nil {
				return err
			}
			for _, r := range res {
				if r.Outcome != store.Created {
					return fmt.Errorf("%v: %w", r.Outcome, r.Err)
				}
			}
			batch = batch[:0]
		}
	}
	fmt.Printf("tasks_per_second=%.0f\n", farTasks/time.Since(start).Seconds())
	fmt.Printf("disk_bytes_per_task=%.0f\n", float64(s.DiskBytes())/farTasks)
	fmt.Printf("peak_mib=%.0f\n", peakMiB())
	return nil
}

// lookRole opens the store and runs one task that is due in a second.
func lookRole(dir string) error {
	ctx := context.Background()
	start := time.Now()
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	fmt.Printf("open_s=%.3f\n", time.Since(start).Seconds())
	res, err := s.Schedule(ctx, []store.NewTask{{Queue: "far", ID: "soon", Delay: time.Second}})
	if err != nil {
		return err
	}
	due := res[0].Due
	for {
		got, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "far", Max: 10}})
		if err != nil {
			return err
		}
		if len(got[0].Tasks) == 1 && got[0].Tasks[0].ID == "soon" {
			fmt.Printf("late_ms=%.2f\n", float64(got[0].Tasks[0].ClaimedAt.Sub(due))/1e6)
			break
		}
		if len(got[0].Tasks) > 0 || !got[0].Next.Equal(due) {
			return fmt.Errorf("got %d tasks, next %v, want it to be %v", len(got[0].Tasks), got[0].Next, due)
		}
		time.Sleep(time.Until(got[0].Next))
	}
	st, err := s.Stats(ctx, "far")
	if err != nil {
		return err
	}
	fmt.Printf("scheduled=%d\n", st.Scheduled)
	fmt.Printf("peak_mib=%.0f\n", peakMiB())
	return s.Close()
}

// peakMiB is the most memory this process has had, in MiB.
func peakMiB() float64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if kb, ok := strings.CutPrefix(sc.Text(), "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
			return n / 1024
		}
	}
	return 0
}

// Five million tasks that are due in a year cost no memory and no time to open,
// and do not keep a task from coming on time.
func TestFiveMillionFarTasks(t *testing.T) {
	if os.Getenv("DUETIME_LONG") == "" {
		t.Skip("long: run with make test-long")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("needs /proc")
	}
	dir := t.TempDir()
	filled := play(t, "fill", dir)
	looked := play(t, "look", dir)
	if n := looked["scheduled"]; n != farTasks {
		t.Errorf("%.0f tasks, want %d", n, farTasks)
	}
	for name, peak := range map[string]float64{"filling": filled["peak_mib"], "opening and claiming": looked["peak_mib"]} {
		if peak == 0 || peak > 300 {
			t.Errorf("%s took %.0f MiB of memory, want at most 300", name, peak)
		}
	}
}
