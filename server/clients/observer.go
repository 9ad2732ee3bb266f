package clients

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/tree"
)

// Events implements raftfsm.Observer.
func (s *Server) Events(zxid int64, events []tree.Event) {
	s.watches.Tell(zxid, events)
}

// SessionEnded implements raftfsm.Observer. It closes the connection of the session after the events of the
// end; a connection that asked for the end gets its reply first.
func (s *Server) SessionEnded(e *state.Ending) {
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

// SessionMoved implements raftfsm.Observer.
func (s *Server) SessionMoved(id int64, gen uint32) {
	s.Observed.SessionCame(id) // an older connection's end here no longer matters
	if c := s.connOf(id); c != nil && c.gen < gen {
		c.retire(ends.Moved)
	}
}

// Reset implements raftfsm.Observer. The state has skipped changes that watching clients would miss, so they
// must start again from the new state with a new connection.
func (s *Server) Reset() {
	s.watches.Reset()
	s.sendAway()
}

// Applied implements raftfsm.Observer.
func (s *Server) Applied() {
	s.batch = 0
	s.outboxes.Kick()
}

// Serving implements raftfsm.Observer.
func (s *Server) Serving(serve bool) {
	if s.ctx.Err() != nil {
		return
	}
	s.Observed.NoteServing(serve)
	s.entrance.SetServing(serve)
	if !serve {
		s.sendAway()
	}
}

// ReadOnly implements raftfsm.Observer. When read-only service ends, its connections end: their
// clients find a server that serves, perhaps this one.
func (s *Server) ReadOnly(on bool) {
	if s.ctx.Err() != nil {
		return
	}
	s.entrance.SetReadOnly(on)
	if !on {
		s.sendAway()
	}
}

// sendAway closes every connection with a session, or about to have one.
func (s *Server) sendAway() {
	for _, c := range s.all() {
		if phase(c.phase.Load()) >= phaseConnect {
			c.out.Kill(ends.Serving)
		}
	}
	s.outboxes.Kick()
}

// Heard implements raftfsm.Observer. A client that waits for an answer is not silent, however old its last
// byte is: the server reads its next bytes only after the answer, so the delay is the server's.
func (s *Server) Heard(touches []state.Touch, all bool) []state.Touch {
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
