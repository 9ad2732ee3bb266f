package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

const (
	askTime = time.Second // for a server to answer what it is doing

	linkPatience = 2 * time.Second // how long a new leader waits for servers to say how far they are
	// followSilence is how long a silent server still counts as following: it reports several times a second.
	followSilence = 2 * time.Second
	linkPoll      = 20 * time.Millisecond
)

var errAlone = errors.New(
	"this server runs alone, without --peers; start it with --peers to make it part of a cluster")

// ChangeMember adds, promotes or removes a server. Any server of the cluster
// can be asked. A new server does not vote until it is promoted, which is
// refused while it is far behind.
func (n *Node) ChangeMember(ctx context.Context, c change.Change) error {
	ctx, cancel := context.WithTimeout(ctx, peer.AnswerTime)
	defer cancel()
	return n.changeMember(ctx, c, true)
}

func (n *Node) changeMember(ctx context.Context, c change.Change, forward bool) error {
	switch {
	case n.port == nil:
		return errAlone
	case !state.IsServerID(c.ID):
		return errServerID(c.ID)
	}
	t := n.term.Load()
	if t == nil {
		if !forward {
			return errNotLeading
		}
		_, err := n.askLeader(ctx, peer.Question{Member: &c})
		return err
	}
	servers, config := n.raft.Configuration()
	var is *raft.Server
	for _, s := range servers {
		if peer.ParseID(s.ID) == c.ID {
			is = &s
		} else if c.Op == change.Add && string(s.Address) == c.Addr {
			return fmt.Errorf("server %s is at %s", s.ID, c.Addr)
		}
	}
	err := t.safe(ctx, &c, servers)
	if err == nil {
		err = t.change(ctx, c, is, config)
	}
	if _, now := n.raft.Configuration(); err != nil && status.Of(err) == "" && now != config {
		return status.With(status.Overtaken, err)
	}
	return err
}

// safe refuses a change of the voters if, after it, the voters that follow would be no majority: the cluster
// would stop with the change. A server that is silent at the moment gets a while to be heard, because this
// leader may have just begun, and a broken link comes back.
func (t *term) safe(ctx context.Context, c *change.Change, servers []raft.Server) error {
	was := votersOf(servers)
	voters := c.Voters(was)
	moves := c.Op == change.Move && c.ID != t.n.id && slices.Contains(was, c.ID)
	if !moves && slices.Equal(was, voters) {
		return nil
	}
	for end := time.Now().Add(linkPatience); ; {
		follow := t.follow()
		follow[c.ID] = follow[c.ID] && (!moves || t.isAt(ctx, c.ID, c.Addr))
		err := change.Safe(voters, follow)
		if err == nil || time.Now().After(end) || t.ctx.Err() != nil || !signal.Pause(ctx, linkPoll) {
			return err
		}
	}
}

func votersOf(servers []raft.Server) (ids []uint32) {
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, peer.ParseID(s.ID))
		}
	}
	return ids
}

// follow returns the servers that follow now and have the log, this one among them.
func (t *term) follow() map[uint32]bool {
	follow := map[uint32]bool{t.n.id: true}
	for id, p := range t.far() {
		t.n.lag(&p, t.n.fsm.Index())
		follow[id] = *p.Heard <= followSilence.Milliseconds() && p.Follows()
	}
	return follow
}

// isAt reports whether a member answers at an address.
func (t *term) isAt(ctx context.Context, id uint32, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := t.n.port.Ask(ctx, id, addr, peer.Question{})
	return err == nil && st.Incarnation == t.n.incarnationOf(id)
}

// change makes one step of a change. It fails if the configuration is no longer the one with index prev. Only
// reconfig asks for describe, vote and demote.
func (t *term) change(ctx context.Context, c change.Change, is *raft.Server, prev uint64) error {
	r := t.n.raft
	if err := t.note(&c); err != nil {
		return err
	}
	id, addr, own := peer.ServerID(c.ID), raft.ServerAddress(c.Addr), c.ID == t.n.id
	switch {
	case c.Op == change.Describe:
		return t.done(ctx, &c, nil)
	case c.Op == change.Add:
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			return fmt.Errorf("peer address %q: %w", c.Addr, err)
		}
		if is != nil {
			return status.Errorf(status.IsMember, "server %d is a member already, at %s", c.ID, is.Address)
		}
		if err := t.forgetFirst(ctx, c.ID); err != nil {
			return err
		}
		return t.done(ctx, &c, r.AddNonvoter(id, addr, prev, 0))
	case c.Op == change.Vote: // whether it runs or not
		if is == nil {
			if err := t.forgetFirst(ctx, c.ID); err != nil {
				return err
			}
		}
		return t.done(ctx, &c, r.AddVoter(id, addr, prev, 0))
	case c.Op == change.Lead && own:
		return nil
	case c.Op == change.Promote && is == nil:
		return status.Errorf(status.NotMember, "server %d is not a member; add it first", c.ID)
	case is == nil:
		return status.Errorf(status.NotMember, "server %d is not a member", c.ID)
	case own && (c.Op == change.Remove || c.Op == change.Demote):
		return t.handOn(ctx, c)
	}
	switch voter := is.Suffrage == raft.Voter; c.Op {
	case change.Promote:
		if voter {
			return t.done(ctx, &c, nil)
		}
		if err := t.caughtUp(ctx, is); err != nil {
			return err
		}
		return t.done(ctx, &c, r.AddVoter(is.ID, is.Address, prev, 0))
	case change.Lead:
		if !voter {
			return fmt.Errorf("server %d has no vote: only voters lead", c.ID)
		}
		if err := t.caughtUp(ctx, is); err != nil {
			return err
		}
		if err := consensus.Await(ctx, r.LeadershipTransferToServer(is.ID, is.Address)); err != nil {
			return status.Errorf(status.Interrupted, "server %d did not take over: %w", c.ID, err)
		}
		return nil
	case change.Remove:
		if t.farewell(ctx, &c) {
			c.Words = "" // they are published
		}
		err := t.done(ctx, &c, r.RemoveServer(is.ID, prev, 0))
		if err == nil {
			t.links.Cut(c.ID)
		}
		return err
	case change.Demote:
		return t.done(ctx, &c, r.DemoteVoter(is.ID, prev, 0))
	case change.Move:
		return t.done(ctx, &c, r.Move(is, c.Addr, prev))
	}
	return fmt.Errorf("unknown change %q; use add, promote or remove", c.Op)
}

// caughtUp returns an error that names what a server waits for, or nil if the server is far enough to vote or
// lead. A new leader first gives the other servers time to say how far they are.
func (t *term) caughtUp(ctx context.Context, s *raft.Server) error {
	id := peer.ParseID(s.ID)
	p, heard := t.far()[id]
	for !heard && time.Since(t.began) <= linkPatience && t.ctx.Err() == nil && signal.Pause(ctx, linkPoll) {
		p, heard = t.far()[id]
	}
	at, ours := p.Applied, t.n.fsm.Index()
	t.n.lag(&p, ours)
	if heard && p.Follows() {
		return nil
	}
	addr := t.n.addresses.instead(id, string(s.Address))
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := t.n.port.Ask(ctx, id, addr, peer.Question{})
	switch {
	case err != nil:
		return status.Errorf(status.NotReady, "server %d is not ready: it does not answer at %s: %w", id, addr, err)
	case st.Waits != "":
		return status.Errorf(status.NotReady,
			"server %d is not ready: it has applied %d of %d log entries, and says: %s", id, at, ours, st.Waits)
	}
	return status.Errorf(status.NotReady, "server %d is not ready: it has applied %d of %d log entries",
		id, at, ours)
}

// done waits for the change and publishes it at once.
func (t *term) done(ctx context.Context, c *change.Change, f raft.Future) error {
	if f != nil {
		if err := consensus.Await(ctx, f); err != nil {
			return err
		}
	}
	if !c.More {
		t.notice.silence(0)
	}
	t.publish(c.Words != "" && !c.More, 0)
	return nil
}

// handOn hands leadership over, then asks the next leader for a change of this server that this server cannot
// make while it leads.
func (t *term) handOn(ctx context.Context, c change.Change) error {
	n := t.n
	c.Since = 0 // the members may have changed when the next leader publishes them
	if err := consensus.Await(ctx, n.raft.LeadershipTransfer()); err != nil {
		return status.Errorf(status.Interrupted, "hand over leadership before this server changes: %w", err)
	}
	for {
		if id, _ := n.raft.Known(); id != 0 {
			if _, err := n.askLeader(ctx, peer.Question{Member: &c}); !errors.Is(err, errNotLeading) {
				return err
			}
		}
		if !signal.Pause(ctx, 20*time.Millisecond) {
			return status.With(status.Interrupted, ctx.Err())
		}
	}
}

// HandOver gives leadership to the follower with the longest log, and returns when that follower leads or has
// refused.
func (n *Node) HandOver(ctx context.Context) error {
	if n.term.Load() == nil {
		return errNotLeading
	}
	if len(n.raft.Servers()) < 2 {
		return errors.New("there is no other server to lead")
	}
	return consensus.Await(ctx, n.raft.LeadershipTransfer())
}
