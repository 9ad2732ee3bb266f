package state

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// Request is one request as a server proposes it. Package entries writes it down in the log.
type Request = entries.Request

// Operations that only servers put into the log. They share the number space
// of the client's operations and are never accepted from a client.
const (
	OpCreateSession jute.OpCode = -10 // body: SessionBody
	OpAttach        jute.OpCode = -12 // body: SessionBody; Request.Session names the session
	// ends Request.Session if its generation is still Request.Gen; body: a byte that says why, see End; an
	// empty body says that the session was silent
	OpExpire     jute.OpCode = -13
	OpOpenStream jute.OpCode = -14 // body: Member, nonce
	OpDigest     jute.OpCode = -15 // body: zxid, digest
	OpConfig     jute.OpCode = -16 // body: the text of /zookeeper/config
	OpReap       jute.OpCode = -17 // body: path of a container or TTL node
	OpBarrier    jute.OpCode = -19 // changes nothing; its outcome comes after those of all earlier requests
	OpWords      jute.OpCode = -20 // body: lines of /zookeeper/config as an operator wrote them
	OpFound      jute.OpCode = -21 // body: the text of /zookeeper/config; see OldFounding
	OpRefuse     jute.OpCode = -22 // changes nothing; replaces a client's request, see Refusal
	OpStage      jute.OpCode = -23 // body: id, origin, birth, size; see Staging
	OpPiece      jute.OpCode = -24 // body: id, offset, bytes of a backup
	OpRestore    jute.OpCode = -25 // body: id, whether sessions are kept
	OpUnstage    jute.OpCode = -26 // body: id
	OpBegin      jute.OpCode = -27 // body: the text of /zookeeper/config, or none; see Founding

	OpTicketing    jute.OpCode = -28 // stands in an entry of its own; see Ticketing
	OpOpenTicket   jute.OpCode = -29 // body: Opening
	OpChangeTicket jute.OpCode = -30 // Request.Session names the ticket; body: its timeout
	OpEndTicket    jute.OpCode = -31 // Request.Session names the ticket; body: why, a session.TicketEnd
	OpDraw         jute.OpCode = -32 // body: Draw
)

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
	Session session.Session // session of OpCreateSession and OpAttach
	Steps   int             // cost of the request under the state lock; see bounds.MaxSteps

	// Divided says that OneLayout caused the code NOAUTH: the code of this outcome, or of an operation of a
	// multi.
	Divided bool
	// Refused says that the session has gone or moved since the request was sent. The client gets no reply,
	// and its connection is closed.
	Refused bool
	// Unknown says that the server will never know whether the request took effect, because a snapshot
	// replaced the state or the server stops. The server closes the connection.
	Unknown bool
}

// Waiter receives the outcome of a proposed request, exactly once. One goroutine at a time calls Done, in the
// order in which the requests were proposed. The caller holds the state lock, except when Unknown is set.
// Done must only append to memory. It gets the state after the request, or nil when Unknown is set.
type Waiter interface {
	Done(*Outcome, *State)
}

// Touch says that a server heard from a client.
type Touch struct {
	Session int64
	Age     uint32 // ms since the last byte arrived
}

// Ending is the end of a session. It must not be changed.
type Ending struct {
	Session session.Session
	Cause   EndCause
	Zxid    int64
	Time    int64 // ms since 1970, by the clock of the leader

	// The events of the nodes that the end removed, and the tree after it. Both are valid only during the
	// call that reports the end.
	Events []tree.Event
	Tree   *tree.Tree
}

// EndCause says why a session ended.
type EndCause uint8

// Causes of a session's end.
const (
	EndClosed   EndCause = iota // the client closed the session
	EndExpired                  // the session was silent for its whole timeout
	EndOperator                 // an operator ended the session
)

// Bytes in the body of an OpExpire. Release 0.1.0 takes any such byte for an operator's order. That changes
// only what it shows to operators.
const (
	byOperator byte = 1
	byClient   byte = 2
)

// End returns the request that ends a session, if its attach generation is still gen when the request is
// applied.
func End(session int64, gen uint32, cause EndCause) Request {
	r := Request{Session: session, Gen: gen, Op: OpExpire}
	switch cause {
	case EndClosed:
		r.Body = []byte{byClient}
	case EndOperator:
		r.Body = []byte{byOperator}
	}
	return r
}

// causeOf returns why an OpExpire ends its session.
func causeOf(r *Request) EndCause {
	switch {
	case len(r.Body) == 0:
		return EndExpired
	case r.Body[0] == byClient:
		return EndClosed
	}
	return EndOperator
}

// Forget returns the request that ends the stream of a removed server. The next server with its id then
// counts as a new server. The request opens a stream for an empty incarnation, which is the incarnation of no
// server. So the births of that id never repeat, and a request from before the removal cannot match a later
// stream. A server that was removed and added again while it ran sees that its stream has ended, and opens
// another. The nonce must be random.
func Forget(id uint32, nonce int64) Request {
	m := Member{ID: id}
	return Request{Op: OpOpenStream, Body: jute.AppendLong(m.Append(nil), nonce)}
}
