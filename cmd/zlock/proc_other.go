//go:build !linux && !windows

package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent does nothing: only Linux ends a child with its parent.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func dieWithGuard() {}

// contain does nothing: only Linux has process namespaces.
func contain(*syscall.SysProcAttr) {}

const canContain = false

// bootClock reads a clock that all processes share.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("the system has no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

func groupAlive(group int) bool { return syscall.Kill(-group, 0) != syscall.ESRCH }

func processAlive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }

// descendants returns the processes alone, because no portable call finds descendants: in the foreground
// zlock ends only COMMAND itself.
func descendants(pids ...int) []int { return pids }

// adoptOrphans does nothing: only Linux has subreapers.
func adoptOrphans(bool) {}

func childrenOf(...int) []int { return nil }

func nameProcess(string) {}
