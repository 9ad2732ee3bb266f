package clients

import (
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
)

// Events implements raftfsm.Observer.
func (s *Server) Events(zxid int64, events []tree.Event) {
	s.conns.Watches.Tell(zxid, events)
}

// Reset implements raftfsm.Observer. The state has skipped changes that watching clients would miss, so they
// must start again from the new state with a new connection.
func (s *Server) Reset() {
	s.conns.Watches.Reset()
	s.conns.SendAway()
}

// Serving implements raftfsm.Observer.
func (s *Server) Serving(serve bool) {
	if s.stops() {
		return
	}
	s.conns.Observed.NoteServing(serve)
	s.conns.Entrance.SetServing(serve)
	if !serve {
		s.conns.SendAway()
	}
}

// ReadOnly implements raftfsm.Observer. When read-only service ends, the read-only connections end, so that
// their clients look for a server that serves, perhaps this one.
func (s *Server) ReadOnly(on bool) {
	if s.stops() {
		return
	}
	s.conns.Entrance.SetReadOnly(on)
	if !on {
		s.conns.SendAway()
	}
}

// SessionEnded implements raftfsm.Observer.
func (s *Server) SessionEnded(e *state.Ending) { s.conns.SessionEnded(e) }

// SessionMoved implements raftfsm.Observer.
func (s *Server) SessionMoved(id int64, gen uint32) { s.conns.SessionMoved(id, gen) }

// Heard implements raftfsm.Observer.
func (s *Server) Heard(touches []state.Touch, all bool) []state.Touch {
	return s.conns.Heard(touches, all)
}

// Applied implements raftfsm.Observer.
func (s *Server) Applied() { s.conns.Applied() }
