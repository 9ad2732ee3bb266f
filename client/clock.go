package client

import "time"

// reading is one look at a clock's three hands. Only differences matter.
type reading struct {
	// Mono does not move while the machine is suspended.
	Mono time.Duration
	// Boot moves while the machine is suspended. Where the system has no such
	// clock it equals Mono.
	Boot time.Duration
	// Wall is the time of day, which an operator may set.
	Wall time.Time
}

// clocks tell the time. A Client asks them for every decision about the validity of a lease; a
// timer only makes it ask again.
type clocks interface {
	Now() reading
}

// systemClock reads the machine's clocks.
type systemClock struct{ origin time.Time }

func newSystemClock() clocks { return systemClock{origin: time.Now()} }

func (c systemClock) Now() reading {
	now := time.Now()
	mono := now.Sub(c.origin)
	return reading{Mono: mono, Boot: bootTime(mono), Wall: now}
}

// since returns the time elapsed from a to b by the most pessimistic hand. A suspended machine
// stops the monotonic clock, so the others must count; a wall clock that was set back says nothing.
func (b reading) since(a reading) time.Duration {
	d := max(b.Mono-a.Mono, b.Boot-a.Boot)
	// Round strips the monotonic reading: only the wall hand is compared here.
	return max(d, b.Wall.Round(0).Sub(a.Wall.Round(0)))
}
