package raftfsm

import (
	"context"
	"maps"
	"slices"
	"time"
)

// comparePeers tells where this server's --peers and the members of its
// cluster differ. Membership is changed at run time, so the list may be older
// or newer than the cluster; neither is a reason not to serve.
func (n *Node) comparePeers() {
	members := map[uint32]string{}
	for _, s := range n.servers() {
		members[parseID(s.ID)] = string(s.Address)
	}
	if len(members) == 0 {
		return // to be told by the leader
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		switch addr, listed := n.o.Peers[id]; {
		case !listed:
			n.log.Warn("a member is missing in --peers: list it, or remove it by: zlock member remove ID", "peer", id, "addr", members[id])
		case addr != members[id]:
			n.log.Warn("--peers has another address than the cluster: start all servers with the same list", "peer", id, "listed", addr, "addr", members[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.o.Peers)) {
		if members[id] == "" {
			n.log.Warn("--peers names a server that is no member: add it by: zlock member add ID HOST:PORT", "peer", id, "addr", n.o.Peers[id])
		}
	}
}

// checkReach tells when this server cannot be reached at the address that
// --peers has for it, where it listens on another one.
func (n *Node) checkReach() {
	addr := n.o.Peers[n.id]
	if addr == n.o.PeerListen {
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	if _, err := n.ask(ctx, n.id, addr, question{}); err != nil && n.ctx.Err() == nil {
		n.log.Warn("this server does not reach itself at its address in --peers, so the others may not either: correct --peer-addr or --peers",
			"addr", addr, "listening", n.o.PeerListen, "err", err)
	}
}
