//go:build !linux

package daemon

import "time"

// relaxTimers does nothing: only Linux lets a process say how late its sleeps may end.
func relaxTimers([]string) {}

// monotonic returns 0. Only the service manager of Linux needs the time.
func monotonic() time.Duration { return 0 }
