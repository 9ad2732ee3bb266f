//go:build !linux

package session

import "time"

// bootTime returns mono, because this system has no such clock; the wall clock covers a suspended machine.
func bootTime(mono time.Duration) time.Duration { return mono }
