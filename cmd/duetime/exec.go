package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
)

// killDelay is how long a command has to end after SIGTERM.
const killDelay = 5 * time.Second

// outputDelay is for how long a command's output is read after its end, where
// what it left in the background holds it open.
const outputDelay = time.Second

// exec runs the command for one task.
func (j *workJob) exec(ctx context.Context, t *duetime.Task) error {
	// A little less than what is kept, for the exit status: what is cut is cut at
	// the end, and the end says why.
	tail := &tailWriter{limit: store.MaxErrorBytes - 100}
	cmd := exec.Command("sh", "-c", j.command)
	cmd.Env = environment(t)
	cmd.Stdin = bytes.NewReader(t.Payload)
	cmd.Stdout = &lockedWriter{&j.stdoutLock, j.stdout}
	cmd.Stderr = io.MultiWriter(&lockedWriter{&j.stderrLock, j.stderr}, tail)
	cmd.WaitDelay = outputDelay
	ownGroup(cmd)
	// The command dies with the thread that started it, not with the process: it must
	// live as long as the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := ctx.Err()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		ended := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			endGroup(ctx, cmd, ended)
		}()
		err = cmd.Wait()
		close(ended)
		<-stopped
		killGroup(cmd)
	}
	// An error beside exit status 0 is that of a signal which the command
	// survived, or of output that something it started still holds open: the
	// command has said that it is done.
	if err == nil || cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	text := strings.TrimSpace(string(tail.text))
	if text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}

// endGroup ends the command when ctx ends: it is asked to, and killed if it has not
// ended after killDelay.
func endGroup(ctx context.Context, cmd *exec.Cmd, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	signalGroup(cmd, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(killDelay):
		signalGroup(cmd, syscall.SIGKILL)
	}
}

// lockedWriter is an output that several commands have at once: whole writes.
type lockedWriter struct {
	lock *sync.Mutex
	w    io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.w.Write(p)
}

// tailWriter keeps the end of what is written to it.
type tailWriter struct {
	limit int
	text  []byte
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	if over := len(w.text) - w.limit; over > 0 {
		w.text = append(w.text[:0], w.text[over:]...)
	}
	return len(p), nil
}
