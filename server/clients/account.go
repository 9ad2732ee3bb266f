package clients

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
)

// account is what the clients at one address cost this server: time under the state lock, counted
// in the steps of tree.MaxSteps, and memory. An address has a third of each second of the lock.
// Every server applies every write, so in a cluster each server gives the address its part of
// that third. When the address has used it up, its connections wait before the lock, with their
// sockets unread, and hold up no other address.
//
// The server charges a write by its length before it proposes it, and corrects that by the
// outcome: writes under way may not exceed the share either.
type account struct {
	owed atomic.Int64 // steps that the share has not yet paid for
	paid atomic.Int64 // when it was last paid, on the server's clock, ns

	// Of the change being told, under watchTable.mu.
	told  int   // what the address is told, tellsInStep to a step; 0: nothing
	loan  *loan // of the portion
	alone bool  // it had no buffers before

	buffers atomic.Int64 // bytes of frames and outboxes; changed under memory.mu
	watches atomic.Int64 // bytes of watches, when they were last added up
}

const (
	// stepNanos is what a step costs an address: tree.StepNanos, and half as much for caches that
	// other work on the machine empties. lockShare is the part of each second that an address has.
	stepNanos = tree.StepNanos * 3 / 2
	lockShare = 3

	// An address may use burstTime of its share at once. The server learns the cost of the end of a
	// large session, and of the events that an address watches, only afterwards: if an address owes
	// more than debtTime, the server sends it no further events, but closes its watching
	// connections.
	burstTime = 100 * time.Millisecond
	debtTime  = 5 * time.Second

	// maxTells is what the events of one change for all connections of an address may cost, in
	// steps; the server closes the connections beyond. A connection costs a step, or a fraction for each
	// event of a node that it watches itself. Their bytes cost a step for each tellBytes.
	maxTells    = 80_000
	tellsInStep = 4
	tellBytes   = 100

	// throttlePoll bounds how long a connection waits until it looks again.
	throttlePoll = 20 * time.Millisecond
)

// What requests cost beside their outcome's steps.
const (
	writeSteps   = 5   // its place in a log entry
	decodeBytes  = 100 // of a write that are decoded in a step, whatever comes of it
	sessionSteps = 30  // a session created or attached, or refused
	plainSteps   = 5   // what the connection alone answers: ping, identities, operations that are refused

	handshakeSteps = 10_000            // of TLS: it takes no lock, and a millisecond of a processor
	reconfigSteps  = tree.MaxSteps / 2 // which asks all servers
)

// share returns the steps that an address may spend in d. Where an address may have
// any number of connections, it may have the whole lock.
func (s *Server) share(d time.Duration) int64 {
	if !s.boundsAddresses() {
		return math.MaxInt64 / 2
	}
	return int64(d) / stepNanos / lockShare / max(1, s.servers.Load())
}

// countServers counts, about once a second, the servers that share the lock time of an address.
func (s *Server) countServers(r Replica) {
	now, last := s.now(), s.counted.Load()
	if s.servers.Load() == 0 || now-time.Duration(last) > time.Second &&
		s.counted.CompareAndSwap(last, int64(now)) {
		r.View(func(st *state.State) {
			n := int64(0)
			for _, m := range st.Members() {
				if m.Incarnation != "" {
					n++
				}
			}
			s.servers.Store(n)
		})
	}
}

// settle pays with the share of the time since the last call, and returns the steps still owed.
func (a *account) settle(s *Server, now time.Duration) int64 {
	paid := a.paid.Load()
	passed := now - time.Duration(paid)
	if passed < time.Millisecond || !a.paid.CompareAndSwap(paid, int64(now)) {
		return a.owed.Load()
	}
	return a.owed.Add(-min(a.owed.Load(), s.share(min(passed, time.Minute))))
}

// afford waits until the address may spend so many steps and charges them. It reports
// false when the connection has ended.
func (c *conn) afford(steps int64) bool {
	if !c.srv.boundsAddresses() {
		return true
	}
	a := &c.from.account
	now := c.reader.arrived // near enough, where the clock costs as much as a read
	for waited := false; ; {
		owed := a.settle(c.srv, now)
		burst := c.srv.share(burstTime)
		if owed < burst {
			if a.owed.CompareAndSwap(owed, owed+steps) {
				return true
			}
			continue
		}
		if now = c.srv.now(); !waited {
			waited = true
			c.srv.metrics.Throttled.Add(1)
			c.flush()
			continue
		}
		if !c.isOpen() || c.srv.ctx.Err() != nil {
			return false
		}
		time.Sleep(min(throttlePoll, time.Millisecond+time.Duration(owed-burst)*burstTime/time.Duration(burst)))
		c.alive(c.srv.now()) // its next bytes wait for us
	}
}

// charge corrects what afford has charged. The next request waits until it is paid.
func (c *conn) charge(steps int64) { c.from.account.owed.Add(steps) }

// foresee is afford for reads, which are charged exactly when they are answered.
func (c *conn) foresee(steps int64) bool {
	c.reads.cost -= steps
	return c.afford(steps)
}

// boundsAddresses reports whether the cost of an address has bounds. An operator who lets one
// address have any number of connections trusts it: it may be a proxy with all clients behind it,
// or a benchmark.
func (s *Server) boundsAddresses() bool { return s.maxConnsPerAddr.Load() > 0 }

// roomFor reports whether an address may make this server keep so many more bytes in watches, frames and
// outboxes together. Buffers come and go, and as much again waits for the collector: they count twice.
func (a *account) roomFor(s *Server, more int) bool {
	return !s.boundsAddresses() ||
		2*(a.buffers.Load()+int64(more))+a.watches.Load() <= 2*int64(s.o.MaxWatchBytesPerConn)
}

// readCost is what a read may cost, by its length: a level of a path takes two bytes at least, and is
// looked up in a quarter of a step. It is corrected by what the read has cost.
func readCost(body []byte) int64 { return int64(2 + len(body)/6) }

// writeCost is what a write may cost, by its length. It is corrected by the outcome.
func writeCost(op jute.OpCode, body []byte) int64 {
	switch {
	case op == jute.OpMulti:
		return min(tree.MaxSteps, int64(2*len(body)))
	case len(body) > 1<<10:
		return writeSteps + int64(len(body)/8)
	}
	return 4 * writeSteps
}
