package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/clients"
)

const (
	joinTime      = 10 * time.Second       // the longest wait for a server that joins
	joinPoll      = 50 * time.Millisecond  // between two attempts to promote it
	publishedTime = 5 * time.Second        // the longest wait for a change to show here
	publishedPoll = 5 * time.Millisecond   //
	leastPatience = 500 * time.Millisecond // with servers that join
)

// reconfigure carries out the operation reconfig. Raft changes one server at a time, so a request
// for several servers becomes several raft configurations; clients see the last one.
func (i *Instance) reconfigure(r clients.ReconfigRequest) (code jute.ErrCode, known bool) {
	node := i.node.Load()
	switch {
	case node == nil:
		return 0, false
	case node.PeerAddr() == "":
		return jute.Unimplemented, true // alone, there is nothing to change
	case r.May && !i.reconfiguring.TryLock(): // a client without the right must not keep others out
		return jute.ReconfigInProgress, true
	case r.May:
		defer i.reconfiguring.Unlock()
	}
	ctx, cancel := context.WithTimeout(i.ctx, joinTime)
	defer cancel()
	for {
		code, known, why := i.reconfigureOnce(ctx, node, &r)
		stale := known && errors.Is(why, raftfsm.ErrStale)
		switch {
		case !stale && why != nil:
			i.o.Logger.Info("reconfig refused", "code", code, "err", why)
			return code, known
		case !stale:
			return code, known
		case r.Version != -1:
			return jute.BadVersion, true
		}
		select { // this server will soon know what the leader knows
		case <-ctx.Done():
			return jute.ReconfigInProgress, true
		case <-time.After(publishedPoll):
		}
	}
}

// reconfigureOnce checks the request in ZooKeeper's order, in which the rights of the client come
// last. After them it checks what is impossible here alone, and then carries the request out.
func (i *Instance) reconfigureOnce(ctx context.Context, node *raftfsm.Node,
	r *clients.ReconfigRequest) (jute.ErrCode, bool, error) {
	c := transition{i: i, node: node}
	var code jute.ErrCode
	var err error
	least := 2
	if i.o.LoneVoter {
		least = 1
	}
	if c.from, c.to, c.since, code, err = plan(i.configText(), r, least); err != nil {
		return code, true, err
	}
	c.ask(ctx, r.May)
	if err := c.safe(); err != nil {
		return jute.NewConfigNoQuorum, true, err
	}
	if !r.May {
		return jute.NoAuth, true, errors.New("the client may not write " + state.ConfigPath)
	}
	if err := c.possible(); err != nil {
		return jute.BadArguments, true, err
	}
	return c.carryOut(ctx, max(r.Patience, leastPatience))
}

// transition is the way from one configuration to another.
type transition struct {
	i        *Instance
	node     *raftfsm.Node
	from, to members
	since    int64           // version of from
	ready    map[uint32]bool // voters of to that follow the leader, or could
	runs     map[uint32]bool // members of from that follow at their old address
	begun    bool            // raft has made a change
}

// ask finds out which servers of both configurations answer. As in ZooKeeper, a majority of the
// voters of a new configuration must run; its other servers need not. For a client without rights
// ask calls members only, not addresses that the client names.
func (c *transition) ask(ctx context.Context, may bool) {
	c.ready, c.runs = map[uint32]bool{}, map[uint32]bool{}
	list := c.from.list(false)
	for id, s := range c.to {
		if may && c.from[id].Peer != s.Peer {
			list = append(list, s)
		}
	}
	for n, found := range standings(ctx, c.node, list) {
		id := list[n].ID
		_, was := c.from[id]
		if n < len(c.from) {
			c.runs[id] = found.follows
		}
		if c.to[id].Voter && (found.follows || !was && found.there) {
			c.ready[id] = true
		}
	}
}

// safe returns an error if the servers of the new configuration would be no cluster.
func (c *transition) safe() error {
	var voters []uint32
	for _, s := range c.to.list(true) {
		voters = append(voters, s.ID)
	}
	return change.Safe(voters, c.ready)
}

// possible returns an error for a request that ZooKeeper could carry out and this server cannot.
func (c *transition) possible() error {
	at := map[string]uint32{}
	for _, id := range c.to.ids(0) {
		s := c.to[id]
		is, was := c.from[id]
		switch other, taken := at[s.Peer]; {
		case !state.IsServerID(id):
			return fmt.Errorf("%s: an id is a number from 0 to %d", s.Peer, state.MaxServerID)
		case s.Peer[len(s.Peer)-2:] == ":0":
			return fmt.Errorf("server %d: port 0 cannot be reached", id)
		case taken:
			return fmt.Errorf("servers %d and %d have the same address %s", other, id, s.Peer)
		case was && is.Peer != s.Peer && c.runs[id]:
			return fmt.Errorf("server %d runs at %s: start it at %s instead, and the cluster takes the new address",
				id, is.Peer, s.Peer)
		}
		at[s.Peer] = id
	}
	return nil
}

// carryOut makes the change. If it fails half way the result is unknown, and clients read the
// present configuration.
func (c *transition) carryOut(ctx context.Context, patience time.Duration) (jute.ErrCode, bool, error) {
	if err := c.join(ctx, patience); err != nil {
		switch {
		case errors.Is(err, raftfsm.ErrChanging) && !c.begun:
			return jute.ReconfigInProgress, true, err
		case errors.Is(err, raftfsm.ErrStale) && !c.begun:
			return jute.BadVersion, true, err
		}
		return jute.NewConfigNoQuorum, c.rollBack(), err
	}
	rest := c.rest()
	if len(rest) == 0 {
		rest = []change.Change{{Op: change.Describe, ID: c.i.o.ID}}
	}
	for n, m := range rest {
		m.More = n < len(rest)-1
		switch err := c.step(c.i.ctx, m); {
		case err == nil:
		case status.Of(err) == status.Unsafe && !c.begun: // servers have left the leader since they were asked
			return jute.NewConfigNoQuorum, true, err
		case errors.Is(err, raftfsm.ErrChanging) && !c.begun:
			return jute.ReconfigInProgress, true, err
		case errors.Is(err, raftfsm.ErrStale) && !c.begun:
			return jute.BadVersion, true, err
		default:
			return 0, false, fmt.Errorf("%s server %d, and what has come of it is not known: %w", m.Op, m.ID, err)
		}
	}
	return jute.OK, c.published(), nil
}

// step makes one change of raft's configuration.
func (c *transition) step(ctx context.Context, m change.Change) error {
	m.By, m.Since, m.Words = c.i.o.ID, c.since, c.to.text()
	err := c.node.ChangeMember(ctx, m)
	if err == nil {
		c.begun = true
		c.i.o.Logger.Info("members changed", "op", m.Op, "peer", m.ID)
	}
	return err
}

// join makes the changes that take no server and no vote away. A server that it cannot promote in
// time counts as one that does not run, if the others are a majority.
func (c *transition) join(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, m := range c.joins() {
		m.More = true
		if m.Op != change.Promote {
			if err := c.step(ctx, m); err != nil {
				return err
			}
		} else if err := c.promote(ctx, m); err != nil {
			if delete(c.ready, m.ID); c.safe() != nil {
				return fmt.Errorf("promote server %d: %w", m.ID, err)
			}
		}
	}
	return nil
}

// joins returns the changes that come first: a running server catches up before it gets a vote.
func (c *transition) joins() (list []change.Change) {
	for _, id := range c.to.ids(c.i.o.ID) {
		s := c.to[id]
		is, was := c.from[id]
		switch {
		case !was && (c.ready[id] || !s.Voter):
			list = append(list, change.Change{Op: change.Add, ID: id, Addr: s.Peer})
		case was && is.Peer != s.Peer:
			list = append(list, change.Change{Op: change.Move, ID: id, Addr: s.Peer})
		}
		if s.Voter && !is.Voter && c.ready[id] {
			list = append(list, change.Change{Op: change.Promote, ID: id})
		}
	}
	return list
}

// promote gives a server its vote once it has caught up.
func (c *transition) promote(ctx context.Context, m change.Change) error {
	for {
		err := c.step(ctx, m)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(joinPoll):
		}
	}
}

// rest returns the other changes, in an order that leaves a majority of followers after each:
// first servers leave that do not follow, then servers join that do not run, then the other
// servers leave, this server last.
func (c *transition) rest() (list []change.Change) {
	leave := func(follows bool) {
		for _, id := range c.from.ids(c.i.o.ID) {
			s, stays := c.to[id]
			switch is := c.from[id]; {
			case c.runs[id] != follows:
			case !stays:
				list = append(list, change.Change{Op: change.Remove, ID: id})
			case is.Voter && !s.Voter:
				list = append(list, change.Change{Op: change.Demote, ID: id})
			}
		}
	}
	leave(false)
	for _, id := range c.to.ids(c.i.o.ID) {
		if is := c.from[id]; c.to[id].Voter && !is.Voter && !c.ready[id] {
			list = append(list, change.Change{Op: change.Vote, ID: id, Addr: c.to[id].Peer})
		}
	}
	leave(true)
	return list
}

// rollBack removes the servers that joined, and reports whether the configuration is as before.
func (c *transition) rollBack() bool {
	for id := range c.to {
		if _, was := c.from[id]; !was {
			// An error may mean that the server was never added.
			_ = c.node.ChangeMember(c.i.ctx, change.Change{Op: change.Remove, ID: id})
		}
	}
	if !membersOf(c.node).same(c.from) {
		c.i.o.Logger.Warn("reconfig: what was begun cannot be taken back")
		return false
	}
	return true
}

// published waits until this server shows the new configuration, as it must before the client
// gets its answer. A server that leaves does not wait: after its removal it sees no further
// configuration.
func (c *transition) published() bool {
	end := time.NewTimer(publishedTime)
	defer end.Stop()
	for {
		if now, version := parseConfig(c.i.configText()); version != c.since && now.same(c.to) {
			return true
		}
		if _, stays := c.to[c.i.o.ID]; !stays {
			return false
		}
		select {
		case <-c.i.ctx.Done():
			return false
		case <-end.C:
			return false
		case <-time.After(publishedPoll):
		}
	}
}
