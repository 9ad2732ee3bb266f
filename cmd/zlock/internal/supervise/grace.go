//go:build !windows

package supervise

import (
	"syscall"
	"time"
)

// Loss says what happens to COMMAND when its right is lost.
type Loss struct {
	OnLost    syscall.Signal // the first signal on loss; 0: only a warning
	KillAfter time.Duration
	OnAsked   syscall.Signal // signal for COMMAND when another client asks for the right back; 0: none
	Nested    time.Duration  // KillAfter when an outer zlock ends COMMAND; 0: no outer zlock
}

// Grace returns the shortest time that COMMAND gets between the signal to end and SIGKILL.
func (l Loss) Grace() time.Duration {
	if l.Nested > 0 {
		return min(l.Nested, l.KillAfter)
	}
	return l.KillAfter
}

// GraceWithin returns the grace of COMMAND if this zlock runs under the lock of an outer zlock whose grace is
// `outer`. The result is shorter than `outer`, so that this zlock releases its lock before the outer zlock
// kills it.
func GraceWithin(outer string) time.Duration {
	d, err := time.ParseDuration(outer)
	if err != nil {
		return 0
	}
	return max(d-time.Second, d/2)
}

// lost() sends COMMAND the signal for a loss, and returns a channel that fires when COMMAND must be killed.
func (s *supervisor) lost() <-chan time.Time {
	s.code = s.right.Code()
	if s.OnLost == 0 {
		s.Say("%v; COMMAND continues", s.right.Err())
		return nil
	}
	s.Say("%v; sending %s", s.right.Err(), SignalName(s.OnLost))
	kill := s.killIn(s.KillAfter)
	s.child.signal(s.OnLost)
	return kill
}

// killIn sends the guard the time of the KILL, and returns a channel that fires at that time.
func (s *supervisor) killIn(grace time.Duration) <-chan time.Time {
	s.guard.send(order{Kill: BootClock() + grace})
	return time.After(grace)
}
