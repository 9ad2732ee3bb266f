package raftfsm

import (
	"runtime/trace"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// ErrClosed is returned by Propose when this server has stopped serving.
var ErrClosed = stream.ErrClosed

// Propose puts a request into this server's stream. It copies the request and blocks while the
// stream is full. The waiter learns the outcome, unless Propose returns an error: then this server
// does not serve.
func (n *Node) Propose(r state.Request, w state.Waiter) error {
	if r.Long() && (n.fsm.low.Load() || n.fsm.full.Load() && r.Op == jute.OpSetACL) {
		r = r.Refusal()
	}
	if trace.IsEnabled() {
		signal.Step("request", "session 0x%x: %v, %d bytes, goes into this server's stream",
			r.Session, r.Op, len(r.Body))
	}
	return n.fsm.stream.Put(&r, w)
}

// opening returns the request to open this server's stream, and whether it must still be opened.
func (n *Node) opening() (bl state.Block, wanted bool) {
	if n.fsm.stream.Birth() != 0 {
		return bl, false
	}
	m := state.Member{ID: n.id, Incarnation: n.disk.Identity().Incarnation, PeerAddr: n.o.Peers[n.id],
		ClientAddr: n.o.ClientAddr}
	return n.fsm.stream.Opening(m, n.o.Rand), true
}

// openOwnStream opens the leader's own stream if it has none. A follower asks over its link.
func (n *Node) openOwnStream() {
	if bl, wanted := n.opening(); wanted {
		if t := n.term.Load(); t != nil {
			t.acts.addOpen(bl)
			t.wake()
		}
	}
}
