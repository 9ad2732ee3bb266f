package leading

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
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/status"
)

const (
	askTime = time.Second // the time within which a server must report its status

	linkPatience = 2 * time.Second // how long a new leader waits for servers to report what they have applied
	// followSilence is how long a silent server still counts as following; a server that follows reports
	// several times a second.
	followSilence = 2 * time.Second
	linkPoll      = 20 * time.Millisecond
)

// Change makes a change of the members.
func (t *Term) Change(ctx context.Context, c change.Change) error {
	servers, config := t.o.Raft.Configuration()
	var is *raft.Server
	for _, s := range servers {
		if peer.ParseID(s.ID) == c.ID {
			is = &s
		} else if c.Op == change.Add && string(s.Address) == c.Addr {
			return fmt.Errorf("server %s is at %s already", s.ID, c.Addr)
		}
	}
	err := t.safe(ctx, &c, servers)
	if err == nil {
		err = t.change(ctx, c, is, config)
	}
	if _, now := t.o.Raft.Configuration(); err != nil && status.Of(err) == "" && now != config {
		return status.With(status.Overtaken, err)
	}
	return err
}

// safe() refuses a change of the voters if, after it, the voters that follow would not be a majority, because
// the cluster would stop. It waits for a while for a server that is silent, because this leader may have just
// begun, or a broken link may come back.
func (t *Term) safe(ctx context.Context, c *change.Change, servers []raft.Server) error {
	was := votersOf(servers)
	voters := c.Voters(was)
	moves := c.Op == change.Move && c.ID != t.o.ID && slices.Contains(was, c.ID)
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

// follow() returns the servers that follow this leader now and have its log. This server is one of them.
func (t *Term) follow() map[uint32]bool {
	follow := map[uint32]bool{t.o.ID: true}
	for id, p := range t.Far() {
		Lag(t.o.Disk, &p, t.o.State.Index())
		follow[id] = *p.Heard <= followSilence.Milliseconds() && p.Follows()
	}
	return follow
}

// isAt reports whether a member answers at an address.
func (t *Term) isAt(ctx context.Context, id uint32, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := t.o.Port.Ask(ctx, id, addr, peer.Question{})
	return err == nil && st.Incarnation == t.o.Incarnation(id)
}

// change() makes one step of a change. It fails if the configuration is no longer the one with index `prev`.
// Only the request `reconfig` asks for Describe, Vote and Demote.
func (t *Term) change(ctx context.Context, c change.Change, is *raft.Server, prev uint64) error {
	r := t.o.Raft
	if err := t.note(&c); err != nil {
		return err
	}
	id, addr, own := peer.ServerID(c.ID), raft.ServerAddress(c.Addr), c.ID == t.o.ID
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
	case c.Op == change.Vote: // the server gets a vote whether it runs or not
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
			c.Words = "" // farewell() has published the words already
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

// caughtUp returns nil if the server has enough of the log to vote or lead. Otherwise its error says what the
// server lacks. A new leader first gives the other servers time to report how far they are.
func (t *Term) caughtUp(ctx context.Context, s *raft.Server) error {
	id := peer.ParseID(s.ID)
	p, heard := t.Far()[id]
	for !heard && time.Since(t.began) <= linkPatience && t.ctx.Err() == nil && signal.Pause(ctx, linkPoll) {
		p, heard = t.Far()[id]
	}
	at, ours := p.Applied, t.o.State.Index()
	Lag(t.o.Disk, &p, ours)
	if heard && p.Follows() {
		return nil
	}
	addr := t.o.Instead(id, string(s.Address))
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := t.o.Port.Ask(ctx, id, addr, peer.Question{})
	switch {
	case err != nil:
		return status.Errorf(status.NotReady, "server %d is not ready: it does not answer at %s: %w", id,
			addr, err)
	case st.Waits != "":
		return status.Errorf(status.NotReady,
			"server %d is not ready: it has applied %d of %d log entries, and says: %s", id, at, ours,
			st.Waits)
	}
	return status.Errorf(status.NotReady, "server %d is not ready: it has applied %d of %d log entries",
		id, at, ours)
}

// done() waits for the change and publishes it at once.
func (t *Term) done(ctx context.Context, c *change.Change, f raft.Future) error {
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

// handOn hands leadership over, and then asks the next leader to make a change that a leader cannot make to
// itself.
func (t *Term) handOn(ctx context.Context, c change.Change) error {
	c.Since = 0 // do not compare Since: the members may have changed before the next leader publishes them
	if err := consensus.Await(ctx, t.o.Raft.LeadershipTransfer()); err != nil {
		return status.Errorf(status.Interrupted, "this server leads, and could not hand over leadership before "+
			"the change: %w", err)
	}
	for {
		if id, _ := t.o.Raft.Known(); id != 0 {
			if _, err := t.o.AskLeader(ctx, peer.Question{Member: &c}); !errors.Is(err, ErrNotLeading) {
				return err
			}
		}
		if !signal.Pause(ctx, 20*time.Millisecond) {
			return status.With(status.Interrupted, ctx.Err())
		}
	}
}

// Lag computes how far a server lags behind the newest entry.
func Lag(d *disk.Disk, p *status.Progress, newest uint64) {
	p.Lag, p.LagBytes = newest-min(p.Applied, newest), nil
	if bytes := d.LogAfter(p.Applied); p.Lag == 0 {
		p.LagBytes = new(int64)
	} else if bytes >= 0 {
		p.LagBytes = &bytes
	}
}
