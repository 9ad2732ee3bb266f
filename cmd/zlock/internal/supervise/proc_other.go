//go:build !linux && !windows

package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent does nothing: only Linux ends a child with its parent.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func dieWithGuard() {}

// Contain does nothing: only Linux has process namespaces.
func Contain(*syscall.SysProcAttr) {}

// CanContain reports whether the system has process namespaces.
const CanContain = false

// BootClock reads a clock that all processes share.
func BootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("the system has no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

func groupAlive(group int) bool { return syscall.Kill(-group, 0) != syscall.ESRCH }

// Alive reports whether a process runs.
func Alive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }

// process is a process of which zlock knows only the number.
type process struct {
	pid, parent, group, ours int
	name                     string
}

func (process) running() bool { return true }

func (p process) signal(sig syscall.Signal) { _ = syscall.Kill(p.ours, sig) }

func self() int { return 0 }

// descendants() returns none: no portable call finds them. So in the foreground zlock can end only COMMAND.
func descendants(int, func(process) bool) []process { return nil }

// adoptOrphans does nothing: only Linux has subreapers.
func adoptOrphans() bool { return false }

// ChildrenOf returns none: no portable call finds them.
func ChildrenOf(int) []int { return nil }

func nameProcess(string) {}
