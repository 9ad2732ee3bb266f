package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

const reachTime = time.Second // a server that takes longer to answer counts as unreachable

// Members implements admin.Source.
func (i *Instance) Members(ctx context.Context) (*status.Members, error) {
	node := i.node.Load()
	if node == nil {
		return &status.Members{ID: i.o.ID}, errNotJoined
	}
	return node.Members(ctx)
}

// Probe implements admin.Source.
func (i *Instance) Probe(ctx context.Context, id uint32, addr string) (*status.Found, error) {
	node := i.node.Load()
	if node == nil {
		return nil, errNotJoined
	}
	if err := checkPeerAddr(addr); err != nil {
		return nil, err
	}
	return node.Probe(ctx, id, addr)
}

func checkPeerAddr(addr string) error {
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || !state.IsPort(port) {
		return fmt.Errorf("peer address %q is not HOST:PORT, such as 10.0.0.4:2888", addr)
	}
	return nil
}

var errNotJoined = status.Errorf(status.NotJoined, "this server has not joined its cluster yet")

// ChangeMember implements admin.Source.
func (i *Instance) ChangeMember(ctx context.Context, c change.Change) error {
	node := i.node.Load()
	if node == nil {
		return errNotJoined
	}
	c = change.Change{Op: c.Op, ID: c.ID, Addr: c.Addr} // only reconfig sets the other fields
	switch c.Op {
	case change.Vote, change.Demote, change.Describe:
		return fmt.Errorf("unknown change %q; use add, promote or remove, or a client's reconfig", c.Op)
	case change.Add, change.Move:
		if err := checkPeerAddr(c.Addr); err != nil {
			return err
		}
	}
	err := node.ChangeMember(ctx, c)
	if err == nil {
		i.o.Logger.Info("members changed", "op", c.Op, "peer", c.ID)
	}
	return err
}

// standing is what a server says of itself when it is asked.
type standing struct{ there, follows bool }

// standings asks servers at once for their standing. Servers that take longer than reachTime have none.
func standings(ctx context.Context, node *raftfsm.Node, servers []state.Server) []standing {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	found := make([]standing, len(servers))
	var wg sync.WaitGroup
	for n, s := range servers {
		wg.Go(func() { found[n].there, found[n].follows = node.Standing(ctx, s.ID, s.Peer) })
	}
	wg.Wait()
	return found
}

// configText returns the membership as clients read it.
func (i *Instance) configText() (text string) {
	i.node.Load().View(func(st *state.State) { text = st.ConfigData() })
	return text
}
