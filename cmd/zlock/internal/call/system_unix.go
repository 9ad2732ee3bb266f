//go:build !windows

package call

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ttyPgrp returns the foreground process group of a terminal. It returns 0 if fd is not a terminal, and -1 if
// the group cannot be read.
func ttyPgrp(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil {
		// A terminal has a size. If this is one, it is not this process's controlling terminal: then the system
		// does not tell its group.
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
		fds := []unix.PollFd{{Fd: int32(fd)}} // ask for no events: poll reports a closed reader in any case
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
	time.Sleep(time.Second) // the signal may end the process a moment later, in another thread
}
