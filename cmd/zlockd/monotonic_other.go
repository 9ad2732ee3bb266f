//go:build !linux

package main

import "time"

// monotonic returns 0: the service manager that compares it runs on Linux alone.
func monotonic() time.Duration { return 0 }
