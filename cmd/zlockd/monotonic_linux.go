package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic returns the time of the system's monotonic clock.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // every Linux has this clock
	return time.Duration(t.Nano())
}
