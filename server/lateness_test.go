package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/duetime/duetime/store/diskstore"
)

// The tests of this file take half a minute each and want a quiet machine. They
// run the server in a process of its own.
func needLong(t *testing.T) {
	t.Helper()
	if os.Getenv("DUETIME_LONG") == "" {
		t.Skip("set DUETIME_LONG=1 to run it")
	}
}

const serverEnv = "DUETIME_TEST_SERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serveForTest(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveForTest serves an embedded store until standard input ends.
func serveForTest(dir string) error {
	runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0))) // as duetime serve does
	st, err := diskstore.Open(dir, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	srv, err := New(st, &Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return srv.Serve(ctx, l)
}

// startProcess starts a server process and returns its URL and process id.
func startProcess(t *testing.T) (string, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line), cmd.Process.Pid
}

func post(client *http.Client, url, body string, answer any) error {
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var raw bytes.Buffer
	if _, err := raw.ReadFrom(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", resp.Status, raw.String())
	}
	return json.Unmarshal(raw.Bytes(), answer)
}

// 2,000 tasks a second at random times, each scheduled by a call of its own, and
// taken by consumers that wait. What counts is when a consumer has the task in
// its hands.
func TestLatenessThroughTheServer(t *testing.T) {
	needLong(t)
	const rate, length, consumers = 2000, 30 * time.Second, 8
	url, pid := startProcess(t)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	hist := hdrhistogram.New(1, 60e6, 3) // µs
	atStore := hdrhistogram.New(1, 60e6, 3)
	var mu sync.Mutex
	var early, taken, repeated atomic.Int64
	seen := map[string]bool{}
	var work sync.WaitGroup
	for range consumers {
		work.Go(func() {
			for ctx.Err() == nil {
				var got struct {
					Tasks []struct {
						ID      string
						Due     time.Time `json:"due_at"`
						Claimed time.Time `json:"claimed_at"`
						Receipt string
					}
				}
				if err := post(client, url+"/v1/queues/q/claim", `{"max":10,"wait":"2s","lease":"1m"}`, &got); err != nil {
					t.Error(err)
					return
				}
				now := time.Now()
				receipts := make([]string, len(got.Tasks))
				mu.Lock()
				for i, task := range got.Tasks {
					late := now.Sub(task.Due)
					if late < 0 {
						early.Add(1)
					}
					_ = hist.RecordValue(max(1, late.Microseconds()))
					_ = atStore.RecordValue(max(1, task.Claimed.Sub(task.Due).Microseconds()))
					if seen[task.ID] {
						repeated.Add(1)
					}
					seen[task.ID] = true
					receipts[i] = task.Receipt
				}
				mu.Unlock()
				if len(receipts) == 0 {
					continue
				}
				taken.Add(int64(len(receipts)))
				body, _ := json.Marshal(map[string]any{"receipts": receipts})
				if err := post(client, url+"/v1/ack", string(body), new(any)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const total = int64(rate * length / time.Second)
	begin := time.Now()
	cpu := cpuOf(t, pid)
	var producers sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		producers.Go(func() {
			for {
				n := next.Add(1)
				if n > total {
					return
				}
				time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / rate)))
				body := fmt.Sprintf(`{"id":"order-%d","payload":{"order":%d},"delay":"%dms"}`, n, n, 200+rand.IntN(3000))
				if err := post(client, url+"/v1/queues/q/tasks?payload=none", body, new(any)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	producers.Wait()
	for deadline := time.Now().Add(20 * time.Second); taken.Load() < total && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(begin)
	cpu = cpuOf(t, pid) - cpu
	stop()
	work.Wait()
	ms := func(q float64) float64 { return float64(hist.ValueAtQuantile(q)) / 1000 }
	t.Logf("lateness of the claim at the store p50 %.2f ms, p99 %.2f ms", float64(atStore.ValueAtQuantile(50))/1000, float64(atStore.ValueAtQuantile(99))/1000)
	t.Logf("%d tasks in %v, lateness at the consumer p50 %.2f ms, p90 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.2f ms; the server used %.0f %% of a core",
		taken.Load(), took.Round(time.Millisecond), ms(50), ms(90), ms(99), ms(99.9), ms(100), 100*cpu.Seconds()/took.Seconds())
	if taken.Load() != total || early.Load() != 0 || repeated.Load() != 0 {
		t.Errorf("%d of %d taken, %d early, %d repeated", taken.Load(), total, early.Load(), repeated.Load())
	}
	if ms(50) > 1 || ms(99) > 10 {
		t.Errorf("p50 %.2f ms, want < 1 ms; p99 %.2f ms, want < 10 ms", ms(50), ms(99))
	}
}

// 2,000 claims that wait cost next to nothing.
func TestIdleLongPolls(t *testing.T) {
	needLong(t)
	const claims, length = 2000, 20 * time.Second
	url, pid := startProcess(t)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}}
	ctx, stop := context.WithCancel(t.Context())
	var polls sync.WaitGroup
	for i := range claims {
		polls.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", fmt.Sprintf("%s/v1/queues/q%d/claim", url, i%10), strings.NewReader(`{"wait":"60s"}`))
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if ctx.Err() == nil {
				t.Errorf("a claim was answered early: %v", err)
			}
			if err == nil {
				resp.Body.Close()
			}
		})
	}
	eventually(t, "all claims wait", func() bool {
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(text), fmt.Sprintf("duetime_waiting_claims %d\n", claims))
	})
	before := cpuOf(t, pid)
	time.Sleep(length)
	used := cpuOf(t, pid) - before
	stop()
	polls.Wait()
	share := 100 * used.Seconds() / length.Seconds()
	t.Logf("%d claims that wait at 10 queues used %.2f %% of a core", claims, share)
	if share > 2 {
		t.Errorf("%.2f %%, want under 2", share)
	}
}

// cpuOf is the processor time that a process has used.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, i := range []int{11, 12} { // user and system, in hundredths of a second
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
