package raftfsm

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// Operations that only servers put into the log. They share the number space
// of the client's operations and are never accepted from a client.
const (
	OpCreateSession jute.OpCode = -10 // body: SessionBody
	OpAttach        jute.OpCode = -12 // body: SessionBody; Request.Session names the session
	OpExpire        jute.OpCode = -13 // Request.Session, conditional on Request.Gen
	OpOpenStream    jute.OpCode = -14 // body: Member, nonce
	OpDigest        jute.OpCode = -15 // body: zxid, digest
	OpConfig        jute.OpCode = -16 // body: the text of /zookeeper/config
	OpReap          jute.OpCode = -17 // body: path of a container or TTL node
	OpForget        jute.OpCode = -18 // body: id of a removed server
	OpBarrier       jute.OpCode = -19 // changes nothing; its outcome comes after everything proposed before it
)

// Request is one request as a server proposes it. Everything Apply needs to
// know travels in it: Apply asks no clock, no configuration and no connection.
type Request struct {
	Session int64
	Gen     uint32 // attach generation of the asking connection
	Op      jute.OpCode
	IDs     []jute.ID // identities; nil means the session's address alone
	Body    []byte    // the client's own bytes, copied by Propose
}

// SessionBody is the body of OpCreateSession and OpAttach.
type SessionBody struct {
	Timeout  int32 // negotiated, ms
	Password [jute.PasswordSize]byte
	Owner    uint32 // id of the server the client is connected to
	Addr     string // the client's IP address, its default identity
}

// Append appends b's encoding.
func (s *SessionBody) Append(b []byte) []byte {
	b = jute.AppendInt(b, s.Timeout)
	b = append(b, s.Password[:]...)
	b = jute.AppendInt(b, int32(s.Owner))
	return jute.AppendString(b, s.Addr)
}

// Outcome is what applying a request produced. Its slices are valid only
// during the call that delivers it.
type Outcome struct {
	Zxid    int64           // zxid for the reply header
	Code    jute.ErrCode    // code for the reply header
	Reply   []byte          // response record, when Code is OK
	Session session.Session // of OpCreateSession and OpAttach

	// Refused: the session has gone or moved since the request was sent. The
	// client gets no reply; its connection is closed.
	Refused bool
	// Unknown: it will never be known whether the request took effect (the
	// state was replaced by a snapshot, or the server stops). The connection
	// is closed.
	Unknown bool
}

// Waiter is told the outcome of a proposed request, exactly once. Done is
// called with the state lock held (except when Unknown is set), by one
// goroutine at a time, in the order in which the requests were proposed; it
// only appends to memory.
type Waiter interface {
	Done(*Outcome)
}

// Touch says that a client was heard from.
type Touch struct {
	Session int64
	Age     uint32 // ms since the last byte arrived
}

// EndCause says why a session ended.
type EndCause uint8

// Causes of a session's end.
const (
	EndClosed  EndCause = iota // the client closed it
	EndExpired                 // it was silent for its timeout
)

// Observer is the part of a server that watches the state change. All methods
// but Applied, Heard and Serving are called with the state lock held, from the
// apply goroutine; none may block, do I/O or call back into the Node.
type Observer interface {
	// Events reports the changes made by one zxid, in order, before the
	// outcome of the request that made them is delivered.
	Events(zxid int64, events []tree.Event)
	// SessionEnded reports that a session and its ephemerals are gone.
	SessionEnded(id int64, cause EndCause, zxid int64)
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
	Heard([]Touch) []Touch
	// Serving tells whether clients may be served from now on. When it turns
	// false every client connection must be closed.
	Serving(bool)
}
