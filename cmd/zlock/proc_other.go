//go:build !linux

package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent: only Linux ends a child with its parent.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func dieWithGuard() {}

// contain: only Linux has namespaces of processes.
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

// descendants cannot be found portably: in the foreground only COMMAND itself
// is ended.
func descendants(pid int) []int { return []int{pid} }

func markedBy(string) []int { return nil }

// adoptOrphans: only Linux can.
func adoptOrphans() {}

func childrenOf(int) []int { return nil }

func nameProcess(string) {}
