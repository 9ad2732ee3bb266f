package raftfsm

import (
	"context"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Standing reports whether a server answers at an address and belongs to this
// cluster, or to none yet; and whether it follows the leader, or leads.
func (n *Node) Standing(ctx context.Context, id uint32, addr string) (there, follows bool) {
	if id == n.id {
		serving, _ := n.Serving()
		return true, serving
	}
	st, err := n.port.Ask(ctx, id, addr, peer.Question{})
	if err != nil || st.ID != id {
		return false, false
	}
	ours := st.Cluster == n.disk.Identity().Cluster
	return ours || st.Cluster == "", ours && st.Up && st.Leader != 0 && (st.Leader == id || st.Linked == st.Leader)
}
