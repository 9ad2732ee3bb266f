//go:build !linux

package session

import "time"

// bootTime has no source here; the wall clock covers a suspended machine.
func bootTime(mono time.Duration) time.Duration { return mono }
