//go:build !linux

package session

import "time"

// bootTime returns mono, because this system has no clock that counts suspended time. The wall clock covers
// the time while the machine is suspended.
func bootTime(mono time.Duration) time.Duration { return mono }
