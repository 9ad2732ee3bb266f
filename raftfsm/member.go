package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// MemberChange is one change of who belongs to the cluster.
type MemberChange struct {
	Op   string `json:"op"` // add, promote or remove
	ID   uint32 `json:"id"`
	Addr string `json:"addr,omitempty"` // peer address, for add
}

const (
	memberTimeout = 10 * time.Second
	promoteLag    = 1000 // entries a server may be behind to become a voter
)

// ChangeMember adds, promotes or removes a server. Any server of the cluster
// can be asked. A new server does not vote until it is promoted, which is
// refused while it is far behind.
func (n *Node) ChangeMember(ctx context.Context, c MemberChange) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	return n.changeMember(ctx, c, true)
}

func (n *Node) changeMember(ctx context.Context, c MemberChange, forward bool) error {
	switch {
	case n.port == nil:
		return errors.New("this server runs alone, without --peers; start it with --peers to make it part of a cluster")
	case c.ID == 0 || c.ID > 254:
		return fmt.Errorf("server id %d is not in 1..254", c.ID)
	}
	t := n.term.Load()
	if t == nil {
		if !forward {
			return errNotLeading
		}
		addr, id := n.raft.LeaderWithID()
		if addr == "" {
			return errors.New("there is no leader at the moment; try again")
		}
		_, err := n.ask(ctx, parseID(id), string(addr), question{Member: &c})
		return err
	}
	conf := n.raft.GetConfiguration()
	if err := await(ctx, conf); err != nil {
		return err
	}
	var is *raft.Server
	for _, s := range conf.Configuration().Servers {
		if parseID(s.ID) == c.ID {
			is = &s
		}
	}
	return t.change(ctx, c, is, conf.Index())
}

// change makes one step; prev makes it fail if somebody else was faster.
func (t *term) change(ctx context.Context, c MemberChange, is *raft.Server, prev uint64) error {
	r := t.n.raft
	switch c.Op {
	case "add":
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			return fmt.Errorf("peer address %q: %w", c.Addr, err)
		}
		if is != nil {
			return fmt.Errorf("server %d is a member already, at %s", c.ID, is.Address)
		}
		return t.settle(ctx, r.AddNonvoter(serverID(c.ID), raft.ServerAddress(c.Addr), prev, 0))
	case "promote":
		if is == nil {
			return fmt.Errorf("server %d is not a member; add it first", c.ID)
		}
		if is.Suffrage == raft.Voter {
			return nil
		}
		at, ok := t.links.progress()[c.ID]
		if ours := t.n.fsm.index.Load(); !ok || at+promoteLag < ours {
			return fmt.Errorf("server %d is not ready: it has applied %d of %d log entries", c.ID, at, ours)
		}
		return t.settle(ctx, r.AddVoter(is.ID, is.Address, prev, 0))
	case "remove":
		if is == nil {
			return fmt.Errorf("server %d is not a member", c.ID)
		}
		if c.ID == t.n.id {
			return t.removeSelf(ctx, c)
		}
		return t.settle(ctx, r.RemoveServer(is.ID, prev, 0))
	}
	return fmt.Errorf("unknown change %q; use add, promote or remove", c.Op)
}

// settle waits for the change and publishes it at once.
func (t *term) settle(ctx context.Context, f raft.Future) error {
	if err := await(ctx, f); err != nil {
		return err
	}
	t.publishMembers()
	return nil
}

// removeSelf hands leadership over first, then lets the next leader do it.
func (t *term) removeSelf(ctx context.Context, c MemberChange) error {
	n := t.n
	if err := await(ctx, n.raft.LeadershipTransfer()); err != nil {
		return fmt.Errorf("hand over leadership before leaving: %w", err)
	}
	for {
		if addr, id := n.raft.LeaderWithID(); addr != "" && parseID(id) != n.id {
			if _, err := n.ask(ctx, parseID(id), string(addr), question{Member: &c}); err == nil || err.Error() != errNotLeading.Error() {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
