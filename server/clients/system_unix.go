//go:build !windows

package clients

import "syscall"

// writeOnce writes what a socket takes at once.
func writeOnce(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
