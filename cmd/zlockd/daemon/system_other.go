//go:build !linux

package daemon

import "time"

// relaxTimers does nothing: only Linux lets a process say how late its sleeps may end.
func relaxTimers([]string) {}

// monotonic returns 0: the service manager that compares it runs only on Linux.
func monotonic() time.Duration { return 0 }
