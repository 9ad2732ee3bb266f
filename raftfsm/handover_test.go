package raftfsm

import (
	"context"
	"testing"
	"time"
)

// TestLeadershipIsHandedOver: to another server, without a session ending; and
// only by the one that leads.
func TestLeadershipIsHandedOver(t *testing.T) {
	c := newTrio(t, false, nil)
	lead := c.leader()
	c.create(lead, "/before")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.nodes[lead%3+1].HandOver(ctx); err != errNotLeading {
		t.Errorf("a follower hands over: %v", err)
	}
	if err := c.nodes[lead].HandOver(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another leader", func() bool { l := c.leader(); return l != 0 && l != lead })
	for id := 1; id <= 3; id++ {
		eventually(t, "it serves", c.seen[id].serving.Load)
		eventually(t, "what was written before", func() bool { return c.has(id, "/before") })
	}
}
