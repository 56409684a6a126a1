package testserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	pollInterval = 10 * time.Millisecond
	logTailBytes = 4 << 10
)

// A Command says how a server is started.
type Command struct {
	// Path is the program: a path, or a name that is looked for.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Dir is the working folder. It must exist. What the server prints goes
	// into Dir/log.
	Dir string
	// Ready returns nil as soon as the server serves. It is called every 10 ms
	// while the server starts, for at most a minute. nil means ready at once.
	Ready func() error
}

// A Process is a server that can be stopped, killed, frozen, and started again
// in the same folder on the same ports.
type Process struct {
	command Command
	path    string

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process of cmd has been waited for
	cleanup []func()      // for Close, last first
}

// startError carries what the server said.
type startError struct {
	why error
	log string
}

func (e *startError) Error() string { return fmt.Sprintf("%v; its log ends with:\n%s", e.why, e.log) }
func (e *startError) Unwrap() error { return e.why }

// Start starts a server for a test and ends it with the test. The test is
// skipped where the program is not installed; see [Need].
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	p, err := StartProcess(c)
	return forTest(t, p, err)
}

// server is what every kind of server here can do.
type server interface {
	Close()
	LogTail() string
}

// forTest binds a server that was started to a test.
func forTest[S server](t testing.TB, s S, err error) S {
	t.Helper()
	var absent *NotInstalledError
	if errors.As(err, &absent) {
		missing(t, absent)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.LogTail())
		}
		s.Close()
	})
	return s
}

// StartProcess starts a server and returns when it is ready. Whoever calls it
// must call Close.
func StartProcess(c Command) (*Process, error) {
	path, err := find(c.Path)
	if err != nil {
		return nil, err
	}
	p := &Process{command: c, path: path}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

// name is what the server is called in messages.
func (p *Process) name() string { return filepath.Base(p.path) }

// start must be called with p.mu held or before p is known to others.
func (p *Process) start() error {
	log, err := os.OpenFile(filepath.Join(p.command.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.command.Args...)
	cmd.Dir = p.command.Dir
	cmd.Env = append(os.Environ(), p.command.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	if err := p.awaitReady(); err != nil {
		p.kill()
		return &startError{why: err, log: p.LogTail()}
	}
	return nil
}

func (p *Process) awaitReady() error {
	deadline := time.Now().Add(startTimeout)
	for {
		var err error
		if p.command.Ready != nil {
			err = p.command.Ready()
		}
		select {
		case <-p.ended: // also if Ready was content: with some other server then
			return fmt.Errorf("testserver: %s ended while it started: %v", p.name(), p.cmd.ProcessState)
		default:
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("testserver: %s is not ready after %v: %w", p.name(), startTimeout, err)
		}
		time.Sleep(pollInterval)
	}
}

// Dir is the folder that the server runs in.
func (p *Process) Dir() string { return p.command.Dir }

// PID is the id of the running process, or of the last that ran.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Running says whether the process has not ended.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill ends the server and all it started at once, as kill -9 does, and returns
// when it is gone. Killing one that has ended does nothing.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Process) kill() {
	killGroup(p.cmd)
	<-p.ended
}

// Stop asks the server to end (SIGTERM) and waits until it has. After half a
// minute it is killed, and Stop returns an error.
func (p *Process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.kill() // also what it may have left behind
	continueGroup(p.cmd)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("testserver: %s did not end within %v of SIGTERM and was killed", p.name(), stopTimeout)
	}
}

// Pause freezes the server (SIGSTOP): its connections stay open and nobody
// answers. It is an error where the operating system can not do that.
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pauseGroup(p.cmd)
}

// Continue ends what Pause began.
func (p *Process) Continue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	continueGroup(p.cmd)
}

// Restart starts the server again, in the same folder and on the same ports, and
// returns when it is ready. One that still runs is killed before.
func (p *Process) Restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
	return p.start()
}

// Close kills the server, removes what was made for it, and gives its ports
// back. It may be called twice.
func (p *Process) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
	for len(p.cleanup) > 0 {
		last := len(p.cleanup) - 1
		p.cleanup[last]()
		p.cleanup = p.cleanup[:last]
	}
}

// LogTail is what the server printed last, at most 4 KiB of it.
func (p *Process) LogTail() string {
	return fmt.Sprintf("--- %s in %s:\n%s", p.name(), p.command.Dir, tail(filepath.Join(p.command.Dir, "log")))
}

func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-logTailBytes), io.SeekStart)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	if len(text) == logTailBytes {
		// Most likely the first line is not whole.
		if _, rest, ok := strings.Cut(string(text), "\n"); ok {
			return rest
		}
	}
	return string(text)
}

// startIn starts a server in a new temporary folder, which goes with it, as do
// the ports.
func startIn(held *ports, prepare func(dir string) (Command, error)) (*Process, error) {
	dir, err := os.MkdirTemp("", "duetime-test-")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	c, err := prepare(dir)
	if err != nil {
		remove()
		return nil, err
	}
	p, err := StartProcess(c)
	if err != nil {
		remove()
		return nil, err
	}
	p.cleanup = append(p.cleanup, held.release, remove)
	return p, nil
}
