//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a command into a process group of its own, so that Ctrl-C in a
// terminal goes to us alone and we decide what becomes of the command, and so
// that what it started ends with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

func signalGroup(cmd *exec.Cmd, sig syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, sig) }

// killGroup ends what a command that was interrupted left behind. One that
// ended by itself may leave a process on purpose.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil && (cmd.ProcessState == nil || !cmd.ProcessState.Exited()) {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
