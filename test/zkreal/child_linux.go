package zkreal

import "syscall"

// childAttr makes the kernel end the child when the test process dies without
// having ended it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
