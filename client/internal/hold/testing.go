package hold

import (
	"context"
	"time"
)

// The functions of this file are only for tests of packages that have holds.

// BeginUnwatched is like Begin, but for a session without a server: the hold never looks at its nodes.
func (s *Shared) BeginUnwatched(ctx context.Context, g *Grant) (*Lease, error) {
	return s.newHold(g).enter(ctx)
}

// Lose ends the hold of the lease as if it was lost for this reason.
func (l *Lease) Lose(why Reason) { l.h.lose(why) }

// Parts returns the leases of a set.
func (l *Lease) Parts() []*Lease { return l.h.g.Parts }

// Nests reports whether two leases belong to one hold.
func (l *Lease) Nests(other *Lease) bool { return l.h == other.h }

// Held returns how long the hold of the lease has lasted.
func (l *Lease) Held() time.Duration { return l.h.held() }

// Hang stops the timers of the hold, as if the program hangs. It reports whether the only timer was the one
// after which the hold watches its own nodes.
func (l *Lease) Hang() bool {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	soon := len(l.h.timers) == 1 && l.h.timers[0].Stop()
	l.h.stopTimers()
	return soon
}

// Named returns the number of locks that tasks hold.
func (s *Shared) Named() int {
	s.named.mu.Lock()
	defer s.named.mu.Unlock()
	return len(s.named.m)
}
