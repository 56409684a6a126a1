package main

import "syscall"

// dieWithParent has the kernel kill a command whose worker was killed, so that it
// does not run beside the second attempt. What the command has started itself it
// does not reach.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
