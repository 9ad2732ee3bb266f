package cluster

import "syscall"

// childAttr makes a server end when the program that started it ends: a killed test or benchmark must not
// leave servers behind.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
