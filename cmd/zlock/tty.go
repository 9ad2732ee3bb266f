package main

import "golang.org/x/sys/unix"

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
