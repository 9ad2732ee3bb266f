package cluster

import "syscall"

// childAttr ends a server with the program that started it: a test or a
// benchmark that is killed must not leave servers behind.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
