package raftfsm

import (
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
)

// Observer is the part of a server that watches the state change. All methods
// but Applied, Heard and Serving are called with the state lock held, from the
// apply goroutine; none may block, do I/O or call back into the Node.
type Observer interface {
	// Events reports the changes made by one zxid, in order, before the
	// outcome of the request that made them is delivered.
	Events(zxid int64, events []tree.Event)
	// SessionEnded reports that a session and its ephemerals are gone.
	SessionEnded(*state.Ending)
	// SessionMoved reports a new attach generation: connections of the session
	// with an older one must be closed.
	SessionMoved(id int64, gen uint32)
	// Reset reports that the state was replaced as a whole: every client
	// connection must be closed and every watch forgotten.
	Reset()
	// Applied is called after the lock was released at the end of a batch:
	// the time to flush outboxes.
	Applied()
	// Heard appends the sessions heard from since it was called last.
	Heard([]state.Touch) []state.Touch
	// Serving tells whether clients may be served from now on. When it turns
	// false every client connection must be closed.
	Serving(bool)
	// ReadOnly tells whether clients that asked for it may read what this
	// server has, although it knows no leader. It is never on while Serving is.
	ReadOnly(bool)
}
