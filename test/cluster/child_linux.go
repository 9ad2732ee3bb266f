package cluster

import "syscall"

// childAttr ends a server with the program that started it: a killed test or benchmark must
// not leave servers behind.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
