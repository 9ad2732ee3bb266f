//go:build !linux

package zkreal

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }
