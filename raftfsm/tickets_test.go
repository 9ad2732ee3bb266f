package raftfsm

import (
	"context"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func opening(secret byte, until int64) state.Request {
	o := state.Opening{SessionBody: state.SessionBody{Timeout: 60_000, Owner: 1, Addr: "10.0.0.1"},
		Ticket:       session.Ticket{Hash: session.Hash{secret}, Identity: "ci", Path: "/ci", Until: until},
		TicketBounds: state.TicketBounds{All: 9, Identity: 9, Path: 9}, Node: "/ci/lock-", Seen: state.Unseen}
	return o.Open(nil)
}

// A cluster has tickets once all of its servers say that they know tickets. Any server may ask for tickets.
func TestTicketsNeedEveryServer(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	away, asks := lead%3+1, (lead+1)%3+1
	open := func() jute.ErrCode { return served(t, c.nodes[asks], opening(1, 0)).Code }
	expect.Equal(t, open(), jute.Unimplemented, "before the cluster has tickets")
	stop(t, c.nodes[away])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := c.nodes[asks].AllowTickets(ctx)
	must.Fails(t, err, "one server is down")
	expect.Has(t, err.Error(), "all servers must be up for the first ticket")
	c.start(away)
	eventually(t, "all are up", func() bool { return c.nodes[asks].AllowTickets(ctx) == nil })
	expect.That(t, c.nodes[asks].fsm.HasTickets(), "it returns before this server knows")
	must.OK(t, c.nodes[asks].AllowTickets(ctx), "again")
	eventually(t, "a ticket is opened", func() bool { return open() == jute.OK })
}

// The leader ends a ticket at its last moment, even if it was heard from just before.
func TestTicketEndsAtItsLastMoment(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	newAsker(t, n)
	must.OK(t, n.AllowTickets(t.Context()))
	ends := n.o.Now().Add(time.Second).UnixMilli()
	one := served(t, n, opening(1, ends)).Session
	two := served(t, n, opening(2, 0)).Session
	var over session.EndedTicket
	eventually(t, "it ends", func() (known bool) {
		n.Touch(one.ID)
		n.View(func(s *state.State) { over, known = s.Sessions().EndOfTicket(session.Hash{1}, ends) })
		return known
	})
	expect.Equal(t, over.Why, session.TicketExpired, "%+v, want %d: over.Why", over, ends)
	expect.That(t, over.At >= ends, "the ticket ended at %d, before its last moment %d", over.At, ends)
	n.View(func(s *state.State) {
		_, lives := s.Sessions().Get(two.ID)
		expect.That(t, lives, "the other ticket has ended")
	})
}

// Only the leader accepts a touch at once. Other servers wait until the leader has acknowledged a later
// report.
func TestLeaderAcknowledgesATouch(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	follower := lead%3 + 1
	s := openSession(t, c.nodes[follower], 30_000).Session
	expect.That(t, c.nodes[lead].Touch(s.ID), "the leader does not take a touch")
	expect.That(t, !c.nodes[follower].Touch(s.ID), "a follower takes a touch")
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for id := 1; id <= 3; id++ {
		later := func(sent time.Time) bool { return sent.After(begin) }
		must.OK(t, c.nodes[id].Acknowledged(ctx, later), "server %d", id)
	}
	over, end := context.WithCancel(ctx)
	end()
	never := func(time.Time) bool { return false }
	expect.Equal(t, c.nodes[follower].Acknowledged(over, never), context.Canceled)
}
