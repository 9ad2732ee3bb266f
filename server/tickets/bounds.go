package tickets

import (
	"fmt"
	"time"
)

// Bounds of tickets.
const (
	MinTTL     = 4 * time.Second
	DefaultTTL = time.Minute
	DefaultMax = 24 * time.Hour
	MaxWait    = 10 * time.Minute

	MinPer = time.Second // a rate is a number of draws in a time between MinPer and MaxPer
	MaxPer = 24 * time.Hour

	MaxTickets = 10_000  // tickets in the whole cluster
	MaxRates   = 100_000 // nodes in the whole cluster, including directories made for rates
	MaxWaits   = 2000    // requests that wait at one server

	maxText = 200
	// clocksApart is how far the leader's clock may be ahead of this server's. The leader ends a ticket by its
	// own clock.
	clocksApart = time.Second

	ackTime   = 2 * time.Second // how long to wait for the leader to acknowledge a touch
	doTime    = 10 * time.Second
	triesMost = 20 // how often a request is tried again when others overtake it
)

// MaxPermits bounds the permits of one ticket. MaxLimit bounds the size that a request may give a semaphore.
const (
	MaxPermits = 100
	MaxLimit   = 1_000_000
)

// enter() counts a wait, or refuses it and returns the reason. It returns "" if the wait is counted.
func (s *Server) enter(w *wait, most int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.waits) >= MaxWaits:
		return fmt.Sprintf("this server has %d waits, and no more are allowed: ask another server, or ask "+
			"without wait", MaxWaits)
	case s.waitsOf[w.identity] >= most:
		return fmt.Sprintf("this identity has %d waits at this server, and no more are allowed", most)
	}
	s.waits[w] = struct{}{}
	s.waitsOf[w.identity]++
	return ""
}

func (s *Server) leave(w *wait) {
	s.arm(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waits, w)
	if s.waitsOf[w.identity]--; s.waitsOf[w.identity] == 0 {
		delete(s.waitsOf, w.identity)
	}
}
