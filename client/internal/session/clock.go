package session

import "time"

// Reading holds the values of three clocks at one moment. Only the difference between two Readings has a
// meaning.
type Reading struct {
	// Mono stops while the machine is suspended.
	Mono time.Duration
	// Boot runs while the machine is suspended. If the system has no such clock, it equals Mono.
	Boot time.Duration
	// Wall is the time of day, which an operator may set.
	Wall time.Time
}

// Clock reads the clocks. A keeper reads them for every decision about the validity of a lease; a timer only
// triggers the next decision.
type Clock interface {
	Now() Reading
}

// systemClock reads the machine's clocks.
type systemClock struct{ origin time.Time }

// SystemClock returns the clock of the machine.
func SystemClock() Clock { return systemClock{origin: time.Now()} }

func (c systemClock) Now() Reading {
	now := time.Now()
	mono := now.Sub(c.origin)
	return Reading{Mono: mono, Boot: bootTime(mono), Wall: now}
}

// Since returns the time from a to b by the clock that shows the longest time. No clock is enough by itself:
// the monotonic clock stops while the machine is suspended, and the wall clock may have been set back.
func (b Reading) Since(a Reading) time.Duration {
	d := max(b.Mono-a.Mono, b.Boot-a.Boot)
	// Round removes the monotonic reading, so this compares only the wall clock.
	return max(d, b.Wall.Round(0).Sub(a.Wall.Round(0)))
}
