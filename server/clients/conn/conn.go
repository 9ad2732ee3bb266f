// Package conn handles the connections of clients, from bytes to a call on the replicated state and back.
//
// Every connection has one goroutine, or none while its client only pings (resting.go). The goroutine decodes
// all complete frames it has received, answers reads from the local state, hands writes to the
// [entrance.Replica] and writes its outbox as soon as no complete frame is left. The goroutine that applies
// the log appends watch events and the outcomes of writes to the outbox. It never touches a socket. Instead a
// small pool of flushers writes the outboxes, once per batch.
//
// Three rules hold throughout:
//
//   - Outbox order is state order. Replies and events are appended while the
//     state lock is held, so a client never sees a change before its event,
//     and a watch never fires before the reply of the read that set it.
//   - Replies keep the order of requests. A request that is answered here waits until the connection's own
//     writes have been answered.
//   - Nothing is dropped in part. A connection that cannot take an event, or
//     whose request has no certain outcome, is closed; the client's reconnect
//     is the retry.
//
// The files, from the ground up: conn.go defines the state of one client. shared.go defines what a connection
// shares with all others, and that is all that it knows of its server. registry.go lists the connections, and
// says what they do when the state changes. cost.go charges requests to the accounts of package budget.
// read.go, outcome.go and the files named after a request answer requests; request.go chooses among them.
// serve.go and resting.go run a connection. The packages that this one uses do not import it: they know a
// connection only by interfaces of their own, such as budget.Holder and outbox.Owner.
package conn

import (
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/entrance"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/rest"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/tree"
)

// Timeouts of a connection, and of its end.
const (
	authPenalty = 100 * time.Millisecond // delay after a failed authentication
	headerGrace = time.Second            // how long the header of a too long frame may take to arrive
	frameTime   = 120 * time.Second      // how long a whole frame may take
)

// phase is the stage of a connection.
type phase int32

const (
	phaseFirst   phase = iota // waits for its first four bytes
	phaseWord                 // answers a four-letter word
	phaseConnect              // asks for a session
	phaseOpen                 // has a session
)

// Conn is one client's connection. Its goroutine reads and, most of the time, writes it; outcomes and events
// come from the goroutine that applies the log. Each part below says which goroutines may use it. The
// embedded parts do not change once the client has its session; from then on any goroutine may read them.
type Conn struct {
	shared *Shared

	socket
	seat

	reader  reader
	reads   readRun
	proof   identity.Proof // only the connection's goroutine changes it; any goroutine may load its list
	pulse   pulse
	place   rest.Place // guarded by the lock of shared.Resting
	watcher watchers.Watcher
	out     outbox.Outbox // has a lock of its own

	phase   atomic.Int32 // one of the phases
	removed bool         // the connection has left the registry; guarded by the registry's lock
}

// socket says where the connection comes from. It is set before the connection's first goroutine starts.
type socket struct {
	from   *address
	born   time.Duration
	number uint64 // number among all connections of the server
}

// seat is the session that the connection serves. The connection's goroutine sets the fields that depend on
// the connect request. The outcome of the handshake sets the other fields, once, before the phase becomes
// phaseOpen. It sets `session` under the lock of the registry, because other goroutines may read `session` at
// any time.
type seat struct {
	replica  entrance.Replica // the state that serves the client, from the connect request on
	gen      uint32
	readOnly bool  // the session was opened while the server had no leader
	mayRead  bool  // the connect request has the field for read-only sessions
	asked    int64 // the session that the connect request names; 0: the client has none yet

	session int64
	timeout time.Duration
}

// reader holds the received bytes that are not handled yet. It belongs to the connection's goroutine. A
// connection that rests has no goroutine: then the reader belongs to the goroutine that visits the
// connection. While the connection's goroutine waits for its session, the goroutine that applies the log may
// read `followed`.
type reader struct {
	in         *inbox.Input     // nil while the connection rests
	held       int              // bytes of `in` that shared.Memory counts
	within     int              // unread bytes of a long setWatches
	arrived    time.Duration    // when the newest bytes came
	frameStart time.Duration    // when the wait for the rest of a frame began; 0: no wait
	followed   *observe.Request // the newest request, if a log records it
	unfinished bool             // the read deadline is that of an unfinished frame
	idle       bool             // the newest request was a ping, or there was none
	rested     bool             // the connection has rested before, so its session is open
	said       bool             // the log already has the reason for the end of this connection
}

// readRun is a run of reads that are answered under one hold of the state lock. It belongs to the
// connection's goroutine.
type readRun struct {
	frame    []byte // the first frame of the run
	view     func(*state.State)
	long     *longReply // the long reply that the run has begun
	need     int        // bytes of memory that the run needs before it continues
	building int64      // steps that it takes to compute the answer for which `need` bytes are reserved
	cost     int64      // steps of the answered reads that are not charged yet
	apart    bool       // the answer's bytes are in a list of its own, so the outbox needs no buffer for them
	behind   bool       // the run must wait for the connection's writes before it continues
	stop     bool       // the connection has ended during the run
}

// pulse says whether the client is alive. Any goroutine may read and write it.
type pulse struct {
	heard    atomic.Int64 // time of the last bytes, on the server's clock, ns
	received atomic.Int64 // number of received bytes
	listed   atomic.Bool  // the connection is in shared.heard
	retired  atomic.Bool  // the session has moved or ended, so bytes no longer keep the session alive
}

// margin is how much longer than its session's timeout an idle connection may stay open.
func (c *Conn) margin() time.Duration { return c.timeout/2 + time.Second }

// longReply is the reply to a read that answerLong builds without the state lock.
type longReply struct {
	list *tree.Long
	head []byte // the first bytes of the frame
}

// Account implements budget.Holder.
func (c *Conn) Account() *budget.Account { return &c.from.Account }

// Number implements budget.Holder.
func (c *Conn) Number() uint64 { return c.number }

// IsOpen implements budget.Holder and rest.Sleeper.
func (c *Conn) IsOpen() bool { return c.out.IsOpen() }

// Alive implements budget.Holder.
func (c *Conn) Alive() { c.alive(c.shared.Now()) }

// Close implements budget.Holder.
func (c *Conn) Close(why ends.Reason) { c.out.Close(why) }

// Wake implements outbox.Owner.
func (c *Conn) Wake() { c.shared.Resting.Wake(c) }

// Kill ends the connection on behalf of the goroutine that applies the log.
func (c *Conn) Kill(why ends.Reason) { c.out.Kill(why) }

// retire ends a connection whose session has a newer connection, or has ended.
func (c *Conn) retire(why ends.Reason) {
	c.pulse.retired.Store(true)
	c.out.Kill(why)
}

// CountWatches implements budget.Holder.
func (c *Conn) CountWatches() { c.shared.Watches.Recount(&c.from.Address) }

// alive() records that the client was not silent at the time `at`: bytes came, or the server did not read the
// bytes that the client had sent.
func (c *Conn) alive(at time.Duration) {
	c.pulse.heard.Store(int64(at))
	if !c.pulse.listed.Load() && !c.readOnly { // a read-only session has no leader to report to
		c.shared.heard.add(c)
	}
}

// owed() reports whether the client waits for the outcome of a request.
func (c *Conn) owed() bool {
	c.out.Lock()
	defer c.out.Unlock()
	return c.out.Open() && c.out.Pending() > 0
}

// Session returns the session that the connection serves. It returns 0 before the handshake.
func (c *Conn) Session() int64 { return c.session }

// Watcher returns the connection as one that watches.
func (c *Conn) Watcher() *watchers.Watcher { return &c.watcher }
