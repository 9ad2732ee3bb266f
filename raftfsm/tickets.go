package raftfsm

import (
	"context"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/session"
)

// ticketsVersion is the version that understands state.Ticketing.
const ticketsVersion = 3

// AllowTickets allows tickets in the cluster, once every member says that it understands them. From then on
// no server of release 0.1.0 can be a member. It returns when this server has applied that.
func (n *Node) AllowTickets(ctx context.Context) error {
	if n.hasTickets() {
		return nil
	}
	var err error
	if t := n.term.Load(); t != nil {
		if err = n.allUnderstand(ctx, ticketsVersion); err == nil {
			entry := state.Ticketing(t.options(), n.o.Now().UnixMilli())
			err = consensus.Await(ctx, n.raft.Apply(entry, time.Second))
		}
	} else {
		var st peer.Status
		st, err = n.askLeader(ctx, peer.Question{Tickets: true})
		if err == nil && st.Version < ticketsVersion {
			err = errOlder(st.ID)
		}
	}
	if err == nil && !n.fsm.Wait(ctx.Done(), n.hasTickets) {
		err = status.With(status.Interrupted, ctx.Err())
	}
	return err
}

func (n *Node) hasTickets() (has bool) {
	n.View(func(s *state.State) { has = s.HasTickets() })
	return has
}

func errOlder(id uint32) error {
	return fmt.Errorf("server %d runs a release that knows neither tickets nor --one-layout: upgrade it first",
		id)
}

// allUnderstand returns an error unless every member says that it understands a version. A member that does
// not would stop at an entry of that version.
func (n *Node) allUnderstand(ctx context.Context, version int) error {
	if n.port == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, foundingWait)
	defer cancel()
	var others []peer.Place
	for _, s := range n.raft.Servers() {
		if id := peer.ParseID(s.ID); id != n.id {
			others = append(others, peer.Place{ID: id, Addr: n.addresses.instead(id, string(s.Address))})
		}
	}
	var err error
	for a := range n.port.AskAll(ctx, others, peer.Question{}) {
		switch {
		case a.Err != nil:
			err = fmt.Errorf("server %d does not say which release it runs, and all must be up for the first "+
				"ticket and for --one-layout: %w", a.ID, a.Err)
		case a.Status.Version < version:
			err = errOlder(a.ID)
		}
	}
	return err
}

// endTickets proposes the end of the tickets that are overdue, unless earlier acts still wait.
func (t *term) endTickets() {
	if t.acts.waits() {
		return
	}
	var due []int64
	t.n.View(func(s *state.State) {
		due = s.Sessions().TicketsDue(t.n.o.Now().UnixMilli(), expiryBatch, nil)
	})
	for _, id := range due {
		t.propose(state.EndTicket(id, session.TicketExpired))
	}
}

// Touch notes that a session was heard from, if this server leads and holds its lease. Otherwise it returns
// false: then Options.Observer must report the session, and Acknowledged waits until the leader has heard.
func (n *Node) Touch(id int64) bool {
	t := n.term.Load()
	if t == nil {
		return false
	}
	t.tracker.Heard([]state.Touch{{Session: id}})
	return n.raft.Leads() && t.ctx.Err() == nil
}

// Acknowledged waits until enough returns true for the time at which this server sent the newest touches that
// the leader has acknowledged; see serving.Service.
func (n *Node) Acknowledged(ctx context.Context, enough func(sent time.Time) bool) error {
	return n.serving.Acknowledged(ctx, enough)
}
