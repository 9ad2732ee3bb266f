package client

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// A write confirms the session, as a heartbeat does.
func TestWriteConfirmsTheSession(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	before := c.keeper.Now().Wall
	unlock(t, lock(t, c.Mutex(d).Lock))
	s := c.Session()
	must.That(t, !s.ValidUntil.Before(before.Add(usable(s))), "not confirmed since")
}

// usable returns how long a session counts as alive after it was confirmed. The speeds of the client's and
// the server's clocks may differ by one part in 200.
func usable(s Session) time.Duration { return time.Duration(float64(s.Timeout)*0.995) - s.Margin }
