package clients

import (
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
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

// countServers counts, about once a second, the servers that share the lock time of an address.
func (s *Server) countServers(r Replica) {
	if s.shares.CountDue(s.now()) {
		r.View(func(st *state.State) {
			n := int64(0)
			for _, m := range st.Members() {
				if m.Incarnation != "" {
					n++
				}
			}
			s.shares.SetServers(n)
		})
	}
}

// afford waits until the address may spend so many steps and charges them. It reports
// false when the connection has ended.
func (c *conn) afford(steps int64) bool {
	shares := &c.srv.shares
	if !shares.Bound() {
		return true
	}
	now := c.reader.arrived // near enough, where the clock costs as much as a read
	for waited := false; ; {
		wait := shares.Spend(&c.from.account, steps, now)
		if wait == 0 {
			return true
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
		time.Sleep(wait)
		c.alive(c.srv.now()) // its next bytes wait for us
	}
}

// charge corrects what afford has charged. The next request waits until it is paid.
func (c *conn) charge(steps int64) { c.from.account.Charge(steps) }

// foresee is afford for reads, which are charged exactly when they are answered.
func (c *conn) foresee(steps int64) bool {
	c.reads.cost -= steps
	return c.afford(steps)
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
