//go:build !windows

package outbox

import "syscall"

// writeOnce writes as much as the socket accepts without waiting.
func writeOnce(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
