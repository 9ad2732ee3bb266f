package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
)

const reachTime = time.Second // a server that takes longer to answer counts as unreachable

// ChangeMember implements admin.Source.
func (i *Instance) ChangeMember(ctx context.Context, c state.MemberChange) error {
	node := i.node.Load()
	if node == nil {
		return errNotJoined
	}
	c = state.MemberChange{Op: c.Op, ID: c.ID, Addr: c.Addr} // only reconfig sets the other fields
	switch c.Op {
	case "vote", "demote", "describe":
		return fmt.Errorf("unknown change %q; use add, promote or remove, or a client's reconfig", c.Op)
	case "add", "move":
		if err := checkPeerAddr(c.Addr); err != nil {
			return err
		}
	case "remove":
		if err := i.mayLeave(ctx, node, c.ID); err != nil {
			return err
		}
	}
	err := node.ChangeMember(ctx, c)
	if err == nil {
		i.o.Logger.Info("members changed", "op", c.Op, "peer", c.ID)
	}
	return err
}

// mayLeave refuses to remove a voter without which the others have no majority within reach: the
// change itself would stop the cluster.
func (i *Instance) mayLeave(ctx context.Context, node *raftfsm.Node, id uint32) error {
	to := members{}
	voter := false
	for _, m := range node.Status().Members {
		if m.ID == id {
			voter = m.Voter
		} else {
			to[m.ID] = state.Server{ID: m.ID, Peer: m.Peer, Voter: m.Voter}
		}
	}
	if !voter {
		return nil
	}
	if to.voters() == 0 {
		return fmt.Errorf("server %d is the last one that votes", id)
	}
	if up := reachable(ctx, node, to); up <= to.voters()/2 {
		return fmt.Errorf("without server %d only %d of the %d voters can be reached, which is no majority: the cluster would stop", id, up, to.voters())
	}
	return nil
}

// reachable counts the voters that answer and belong to this cluster.
func reachable(ctx context.Context, node *raftfsm.Node, m members) int {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	var wg sync.WaitGroup
	var up atomic.Int32
	for _, s := range m {
		if !s.Voter {
			continue
		}
		wg.Go(func() {
			if there, _ := node.Standing(ctx, s.ID, s.Peer); there {
				up.Add(1)
			}
		})
	}
	wg.Wait()
	return int(up.Load())
}

// configText returns the membership as clients read it.
func (i *Instance) configText() (text string) {
	i.node.Load().View(func(st *state.State) { text = st.ConfigData() })
	return text
}
