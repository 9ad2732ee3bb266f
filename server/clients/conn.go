package clients

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/rest"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/tree"
)

// Times after which a connection ends, and of its end.
const (
	lingerTime  = time.Second            // for a client to read the last frame
	authPenalty = 100 * time.Millisecond // after a failed authentication
	headerGrace = time.Second            // for the header after an oversized prefix
	stallTime   = 30 * time.Second       // for the rest of a frame, or a client that takes no byte
	frameTime   = 120 * time.Second      // for a frame in all
)

// phase is how far a connection has come.
type phase int32

const (
	phaseFirst   phase = iota // its first four bytes are awaited
	phaseWord                 // a four-letter word is answered
	phaseConnect              // it asks for a session
	phaseOpen                 // it has one
)

// conn is one client's connection. Its goroutine reads and, most of the time, writes it; outcomes and
// events come from the goroutine that applies the log. Each part below says who may touch it. The embedded
// parts do not change once the client has its session: all may read them then.
type conn struct {
	srv *Server

	socket
	seat

	reader   reader
	reads    readRun
	proof    proof
	pulse    pulse
	place    rest.Place // under the lock of srv.resting
	watching watching
	flight   flight
	out      outbox // has a lock of its own

	phase   atomic.Int32 // how far it has come: a phase
	removed bool         // the server has forgotten it; under srv.mu
}

// socket is where the client is. All of it is set before the connection's first goroutine.
type socket struct {
	nc     net.Conn
	raw    syscall.RawConn // nil: not plain TCP
	secure bool
	host   string // the client's address without its port
	from   *address
	born   time.Duration
	number uint64 // connections of the server are counted
}

// seat is the session that the connection serves. The connection's goroutine fills in what the client asks
// for; the outcome of the handshake writes the rest, once, before the phase is open. The session is written
// under srv.mu, which may be asked for it at any time.
type seat struct {
	replica  Replica // the state that serves the client, from the connect request on
	readOnly bool    // the session is one of a server without a leader
	mayRead  bool    // the connect request said whether it takes such a session
	asked    int64   // the session that the client came back for, if any

	session int64
	gen     uint32
	timeout time.Duration
}

// reader holds the bytes received, up to the newest request. It belongs to the connection's goroutine. A
// connection that rests has none: then it belongs to the goroutine whose visit it is. While the connection's
// goroutine waits for its session, the goroutine that applies the log may read followed.
type reader struct {
	in         *inbox.Input     // nil while the connection rests
	held       int              // bytes of in that srv.memory counts
	within     int              // bytes of a long setWatches that are not read yet
	arrived    time.Duration    // when the newest bytes came
	frameStart time.Duration    // when the wait for the rest of a frame began; 0: not yet
	followed   *observe.Request // the newest request, if a log wants it
	unfinished bool             // the deadline is that of an unfinished frame
	idle       bool             // the newest request, if there was one, was a ping
	rested     bool             // it has rested before: its session is open
	said       bool             // the log has a line about why this connection ends
}

// readRun is a run of reads that are answered under one hold of the state lock. It belongs to the
// connection's goroutine.
type readRun struct {
	frame    []byte // the one that the run begins with
	view     func(*state.State)
	long     *longReply // what the run has begun to answer
	need     int        // bytes of memory that the run must have before it goes on
	building int64      // steps of the answer that needs them
	cost     int64      // of the reads answered, in steps, beyond what is charged
	apart    bool       // the answer needs no buffer
	behind   bool       // the run must wait for the connection's writes before it goes on
	stop     bool       // the run met the end of the connection
}

// proof is who the client is. The connection's goroutine alone changes it; all may load the identities,
// which are replaced, never changed.
type proof struct {
	ids      identity.List    // the client's address, then what it has proved
	exchange sasl.Negotiation // the SASL negotiation under way, if any
	auths    int32            // auth packets so far
	empties  uint8            // answers without a token where there is no SASL
}

// pulse is whether the client is alive. All may read and write it.
type pulse struct {
	heard    atomic.Int64 // when bytes came last, on the server's clock, ns
	received atomic.Int64 // bytes
	listed   atomic.Bool  // in srv.heard
	retired  atomic.Bool  // the session has moved or ended: hearing from it means nothing
}

// watching is the connection among those that watch. It is under srv.watches.mu.
type watching struct {
	dropped bool  // it may watch nothing more
	hears   int32 // its place among those told of the change, from 1
}

// flight is what is being written. It belongs to the flush under way.
type flight struct {
	sent   piece
	unsent []byte // the rest of it
}

// margin is how much longer than its session's timeout an idle connection may be there.
func (c *conn) margin() time.Duration { return c.timeout/2 + time.Second }

// longReply is the reply to a read that answerLong builds without the state lock.
type longReply struct {
	list *tree.Long
	head []byte // of the frame
}
