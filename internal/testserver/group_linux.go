package testserver

import "syscall"

// dieWithParent has the kernel kill a server whose test process was killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
