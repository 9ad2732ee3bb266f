package raftfsm

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// AllowTickets allows tickets in the cluster, once every member says that it understands them. From then on
// no server of release 0.1.0 can be a member. AllowTickets returns when this server has applied the entry
// that allows them.
func (n *Node) AllowTickets(ctx context.Context) error {
	if n.fsm.HasTickets() {
		return nil
	}
	if t := n.leader.Term(); t != nil {
		return t.AllowTickets(ctx)
	}
	st, err := n.askLeader(ctx, peer.Question{Tickets: true})
	if err == nil && st.Version < leading.TicketsVersion {
		err = leading.ErrOlder(st.ID)
	}
	if err == nil && !n.fsm.Wait(ctx.Done(), n.fsm.HasTickets) {
		err = status.With(status.Interrupted, ctx.Err())
	}
	return err
}

// Touch notes that a session was heard from, if this server leads and holds its lease. Otherwise it returns
// false. Then Options.Observer must report the session, and Acknowledged waits until the leader has received
// the report.
func (n *Node) Touch(id int64) bool {
	t := n.leader.Term()
	return t != nil && t.Heard(id)
}

// Acknowledged calls enough() with the time at which this server sent the newest touches that the leader has
// acknowledged, until enough() returns true; see serving.Service.
func (n *Node) Acknowledged(ctx context.Context, enough func(sent time.Time) bool) error {
	return n.serving.Acknowledged(ctx, enough)
}

// LeaderTime returns this server's estimate of the time that the cluster's next decision will use: the time
// of this server's clock, or of the leader's clock if the leader's clock is ahead.
func (n *Node) LeaderTime() time.Time { return n.o.Now().Add(n.fsm.Ahead()) }
