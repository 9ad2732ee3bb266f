package clients

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// SessionEnded is the call of a raftfsm.Observer. It closes the connection of the session after the events of the
// end; a connection that asked for the end gets its reply first.
func (s *shared) SessionEnded(e *state.Ending) {
	c := s.connOf(e.Session.ID)
	heard := time.Duration(-1)
	if c != nil {
		heard = time.Duration(c.pulse.heard.Load())
	}
	s.Observed.SessionEnded(e, heard)
	if s.o.Ended != nil {
		s.o.Ended(e.Session.ID, e.Events)
	}
	if c == nil {
		return
	}
	c.pulse.retired.Store(true)
	c.out.Lock()
	defer c.out.Unlock()
	if c.out.Closing() && e.Cause == state.EndClosed {
		return // the outcome of the request comes next
	}
	c.out.End(ends.Gone)
	c.out.Touch()
}

// SessionMoved is the call of a raftfsm.Observer.
func (s *shared) SessionMoved(id int64, gen uint32) {
	s.Observed.SessionCame(id) // an older connection's end here no longer matters
	if c := s.connOf(id); c != nil && c.gen < gen {
		c.retire(ends.Moved)
	}
}

// sendAway closes every connection with a session, or about to have one.
func (s *shared) sendAway() {
	for _, c := range s.all() {
		if phase(c.phase.Load()) >= phaseConnect {
			c.out.Kill(ends.Serving)
		}
	}
	s.outboxes.Kick()
}

// Heard is the call of a raftfsm.Observer. A client that waits for an answer is not silent, however old its last
// byte is: the server reads its next bytes only after the answer, so the delay is the server's.
func (s *shared) Heard(touches []state.Touch, all bool) []state.Touch {
	if all {
		s.mu.Lock()
		for _, c := range s.sessions {
			s.heard.add(c)
		}
		s.mu.Unlock()
	}
	now := s.now()
	for _, c := range s.heard.take() {
		c.pulse.listed.Store(false) // do this before the age is read: bytes that arrive now list it again
		if c.pulse.retired.Load() {
			continue
		}
		age := now - time.Duration(c.pulse.heard.Load())
		if c.owed() {
			age = 0
			s.heard.add(c)
		}
		touches = append(touches, state.Touch{Session: c.session, Age: uint32(max(age, 0).Milliseconds())})
	}
	return touches
}

// Applied is the call of a raftfsm.Observer.
func (s *shared) Applied() {
	s.batch = 0
	s.outboxes.Kick()
}
