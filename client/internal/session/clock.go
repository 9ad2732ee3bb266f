package session

import "time"

// Reading is one look at a clock's three hands. Only differences matter.
type Reading struct {
	// Mono does not move while the machine is suspended.
	Mono time.Duration
	// Boot moves while the machine is suspended. Where the system has no such
	// clock it equals Mono.
	Boot time.Duration
	// Wall is the time of day, which an operator may set.
	Wall time.Time
}

// Clock tells the time. A keeper asks them for every decision about the validity of a lease; a
// timer only makes it ask again.
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

// Since returns the time elapsed from a to b by the most pessimistic hand. A suspended machine
// stops the monotonic clock, so the others must count; a wall clock that was set back says nothing.
func (b Reading) Since(a Reading) time.Duration {
	d := max(b.Mono-a.Mono, b.Boot-a.Boot)
	// Round strips the monotonic reading: only the wall hand is compared here.
	return max(d, b.Wall.Round(0).Sub(a.Wall.Round(0)))
}
