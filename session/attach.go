package session

import (
	"crypto/subtle"

	"github.com/zlockd/zlockd/jute"
)

// Attach attaches a session to a new connection: it stores the connection's owner, address and timeout, and
// raises the generation. It returns false, and changes nothing, if there is no such session, the password is
// wrong, or the session is a ticket.
func (t *Table) Attach(id int64, password [jute.PasswordSize]byte, timeout int32, owner uint32, addr string) (
	Session, bool) {
	if !t.Check(id, password) {
		return Session{}, false
	}
	s := *t.byID[id]
	s.Timeout = max(timeout, 1)
	s.Gen++
	t.disown(&s)
	s.Owner = owner
	s.Addr = addr
	t.own(&s)
	t.put(&s)
	return s, true
}

// Check reports whether a client's session exists and has this password. For a ticket it returns false. The
// time that it takes does not depend on the password.
func (t *Table) Check(id int64, password [jute.PasswordSize]byte) bool {
	s, ok := t.byID[id]
	return ok && s.Ticket == nil && subtle.ConstantTimeCompare(s.Password[:], password[:]) == 1
}
