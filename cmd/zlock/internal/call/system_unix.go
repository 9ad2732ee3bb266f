//go:build !windows

package call

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ttyPgrp returns the foreground process group of a terminal. It returns 0 if fd is not a terminal.
func ttyPgrp(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil {
		// If the terminal is not the controlling terminal of this process, its group cannot be read: return -1.
		if _, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err != nil {
			return 0
		}
		return -1
	}
	return n
}

// awaitUnread waits until the other end of a pipe, socket or terminal is closed.
func awaitUnread(fd int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(fd)}} // no events are needed: poll always reports errors
		_, err := unix.Poll(fds, -1)
		switch {
		case err == nil:
			return fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		case err != unix.EINTR:
			return false
		}
	}
}

// DieOfInterrupt ends this process by SIGINT, so that Ctrl-C also ends a shell's loop around zlock. The exit
// code that a shell sees stays the same.
func DieOfInterrupt() {
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // wait, because another thread may receive the signal
}
