package raftfsm

import (
	"context"
	"fmt"
	"runtime/trace"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// Propose returns ErrClosed when this server has stopped serving.
var ErrClosed = stream.ErrClosed

// Propose puts a request into this server's stream. It copies the request and blocks while the stream is
// full. The waiter learns the outcome. If Propose returns an error, this server does not serve, and the
// waiter learns nothing.
func (n *Node) Propose(r state.Request, w state.Waiter) error {
	if state.Long(&r) && (n.fsm.Low() || n.fsm.Full() && r.Op == jute.OpSetACL) {
		r = state.Refusal(&r)
	}
	if trace.IsEnabled() {
		signal.Step("request", "session 0x%x: %v, %d bytes: queued for the leader",
			r.Session, r.Op, len(r.Body))
	}
	return n.fsm.Stream.Put(&r, w)
}

// opening() returns the request to open this server's stream. `wanted` reports whether the stream must still
// be opened.
func (n *Node) opening() (bl entries.Block, wanted bool) {
	if n.fsm.Stream.Birth() != 0 {
		return bl, false
	}
	m := state.Member{ID: n.id, Incarnation: n.disk.Identity().Incarnation, PeerAddr: n.o.Peers[n.id],
		ClientAddr: n.o.ClientAddr}
	return n.fsm.Stream.Opening(m, n.o.Rand), true
}

// openOwnStream opens the leader's own stream if the stream is not open. A follower asks over its link for
// its stream to be opened.
func (n *Node) openOwnStream() {
	if bl, wanted := n.opening(); wanted {
		if t := n.leader.Term(); t != nil {
			t.OpenStream(bl)
		}
	}
}

// confirmed is a waiter that receives true if a request of this server was applied.
type confirmed chan bool

// Done implements state.Waiter.
func (c confirmed) Done(o *state.Outcome, _ *state.State) { c <- !o.Unknown }

// Current waits until this server has applied every change that any server of the cluster had answered before
// the call. For that, an entry goes through the log, and a majority confirms it. Current returns an error if
// ctx ends first, or if this server does not serve because it has no leader or was removed.
func (n *Node) Current(ctx context.Context) error {
	done := make(confirmed, 1)
	failed := make(chan error, 1)
	go func() { // Propose may block until the stream has room or closes
		if err := n.Propose(state.Request{Op: state.OpBarrier}, done); err != nil {
			failed <- err
		}
	}()
	why := func(err error) error {
		if serves, reason := n.Serving(); !serves {
			return status.Errorf(status.NoLeader, "this server is not current: %s", reason)
		}
		return status.With(status.Interrupted,
			fmt.Errorf("no leader has confirmed that this server is current: %w", err))
	}
	select {
	case <-ctx.Done():
		return why(ctx.Err())
	case err := <-failed:
		return why(err)
	case ok := <-done:
		if !ok {
			return why(ErrClosed)
		}
		return nil
	}
}
