//go:build !unix

package testserver

import (
	"errors"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func pauseGroup(*exec.Cmd) error { return errors.ErrUnsupported }

func continueGroup(*exec.Cmd) {}
