//go:build !windows

package call

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ttyPgrp returns the foreground process group of a terminal, 0 if fd is not a terminal.
func ttyPgrp(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil {
		// A terminal that does not control this process is still a terminal.
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
		fds := []unix.PollFd{{Fd: int32(fd)}} // poll always reports errors
		_, err := unix.Poll(fds, -1)
		switch {
		case err == nil:
			return fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		case err != unix.EINTR:
			return false
		}
	}
}

// DieOfInterrupt ends this process by the signal, as a shell expects that calls it in a loop: Ctrl-C ends the
// loop then. To the shell the exit code is the same.
func DieOfInterrupt() {
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // the signal may come by another thread
}
