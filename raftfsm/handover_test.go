package raftfsm

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestLeadershipIsHandedOver: to another server, without a session ending; and
// only by the one that leads.
func TestLeadershipIsHandedOver(t *testing.T) {
	c := newTrio(t, false, nil)
	lead := c.leader()
	c.create(lead, "/before")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	expect.Equal(t, c.nodes[lead%3+1].HandOver(ctx), errNotLeading, "a follower hands over")
	must.OK(t, c.nodes[lead].HandOver(ctx))
	eventually(t, "another leader", func() bool { l := c.leader(); return l != 0 && l != lead })
	for id := 1; id <= 3; id++ {
		eventually(t, "it serves", c.seen[id].serving.Load)
		eventually(t, "what was written before", func() bool { return c.has(id, "/before") })
	}
}

// A leader that hands over takes no requests while it does, and raft may never learn
// that this has ended: it waits for a replicator that is gone. Such a leader lets
// another lead.
func TestLeaderThatHandsOverForEverIsReplaced(t *testing.T) {
	t.Parallel()
	var still stillNet
	c := newTrio(t, false, still.tune)
	lead := c.leader()
	at := func(i int) int { return (lead+i-1)%3 + 1 }
	one, two, three := c.nodes[lead], c.nodes[at(1)], c.nodes[at(2)]
	addr := one.o.Peers[three.id]
	still.takesNothing(func(p peer.Purpose, to string) bool { return to == addr && p == peer.Raft })
	t.Cleanup(func() { still.takesNothing(func(peer.Purpose, string) bool { return false }) })
	c.create(lead, "/missed")
	for range 2 { // the second waits for the first to be taken notice of
		eventually(t, "an attempt fails", func() bool {
			err := one.raft.LeadershipTransferToServer(peer.ServerID(three.id), raft.ServerAddress(addr)).Error()
			return err != nil && err != raft.ErrLeadershipTransferInProgress
		})
	}
	two.raft.Stand()
	eventually(t, "another leads", func() bool { return c.leader() == at(1) })
	one.raft.Stand()
	eventually(t, "the first is elected again", func() bool { return one.raft.Leads() })
	must.Equal(t, one.raft.Barrier(0).Error(), raft.ErrLeadershipTransferInProgress, "it is not stuck")
	eventually(t, "another leads instead", func() bool { return c.leader() == at(1) })
	eventually(t, "the first serves", c.seen[lead].serving.Load)
	c.create(lead, "/after")
}
