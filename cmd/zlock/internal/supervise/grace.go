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
	OnAsked   syscall.Signal // what COMMAND gets when another client asks for the right; 0: nothing
	Nested    time.Duration  // if an outer zlock ends this one: the time for COMMAND to end; 0: no outer zlock
}

// Grace returns the shortest time that COMMAND gets between the signal to end and SIGKILL.
func (l Loss) Grace() time.Duration {
	if l.Nested > 0 {
		return min(l.Nested, l.KillAfter)
	}
	return l.KillAfter
}

// GraceWithin returns how long COMMAND may take to end when an outer zlock ends this zlock within the time
// `outer`. It is less than `outer`, so that this zlock can release its lock before it is killed.
func GraceWithin(outer string) time.Duration {
	d, err := time.ParseDuration(outer)
	if err != nil {
		return 0
	}
	return max(d-time.Second, d/2)
}

// lost() handles the loss of the right: it sends COMMAND the first signal, and returns a channel that fires
// when COMMAND must be killed.
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
