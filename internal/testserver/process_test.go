package testserver_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// TestMain plays the process that TestServerDiesWithItsProcess kills.
func TestMain(m *testing.M) {
	if os.Getenv("DUETIME_TEST_CHILD") != "" {
		r, err := testserver.StartRedis(nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(r.Addr, r.Dir())
		select {}
	}
	os.Exit(m.Run())
}

func TestServerDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the children of a process that was killed")
	}
	testserver.Need(t, "redis-server")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "DUETIME_TEST_CHILD=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	addr, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	// Its folder stays, since nobody was left to remove it.
	t.Cleanup(func() { os.RemoveAll(dir) })
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server lives on though its process was killed")
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	r := testserver.Redis(t, nil)
	conn, err := r.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := r.Pause(); err != nil {
		t.Skip(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Do("PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answers, %v", err)
	case <-time.After(silent):
	}
	r.Continue()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "redis-server")
	_, err := testserver.StartRedis(&testserver.RedisOptions{Config: []string{"--no-such-option", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("got %v, want what the server printed", err)
	}
}

// TestClose looks for what a server might leave behind.
func TestClose(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "redis-server")
	r, err := testserver.StartRedis(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir(), "log")); err != nil {
		t.Error(err)
	}
	r.Close()
	r.Close()
	if _, err := os.Stat(r.Dir()); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
	l, err := net.Listen("tcp4", r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// outcome is a test that notes how it ended.
type outcome struct {
	testing.TB
	failed, skipped string
}

func (o *outcome) Helper()       {}
func (o *outcome) Skip(a ...any) { o.skipped = fmt.Sprint(a...) }
func (o *outcome) Fatalf(format string, a ...any) {
	o.failed = fmt.Sprintf(format, a...)
}

func TestNeed(t *testing.T) {
	t.Setenv("DUETIME_NEED_SERVERS", "")
	var o outcome
	testserver.Need(&o, "redis-server-of-nowhere")
	if !strings.Contains(o.skipped, "redis-server-of-nowhere") || o.failed != "" {
		t.Errorf("skipped %q, failed %q", o.skipped, o.failed)
	}
	t.Setenv("DUETIME_NEED_SERVERS", "1")
	o = outcome{}
	testserver.Need(&o, "redis-server-of-nowhere")
	if !strings.Contains(o.failed, "redis-server-of-nowhere") {
		t.Errorf("failed %q", o.failed)
	}
}
