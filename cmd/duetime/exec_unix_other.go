//go:build unix && !linux

package main

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
