package raftfsm

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/zlockd/zlockd/raftfsm/peer"
)

// comparePeers tells where this server's --peers and the members of its
// cluster differ. Membership is changed at run time, so the list may be older
// or newer than the cluster; neither is a reason not to serve.
func (f *forming) comparePeers(servers []raft.Server) {
	if len(f.o.Peers) == 0 && f.port == nil {
		return // alone, and not meant to be anything else
	}
	members := map[uint32]string{}
	for _, s := range servers {
		members[peer.ParseID(s.ID)] = string(s.Address)
	}
	if len(members) == 0 {
		return // to be told by the leader
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		switch addr, listed := f.o.Peers[id]; {
		case !listed:
			f.o.Logger.Warn("a member is missing in --peers: list it, or remove it by: zlock member remove ID", "peer", id, "addr", members[id])
		case addr != members[id] && id == f.o.ID:
			f.o.Logger.Info("this server has another address than the cluster knows; it tells the others", "addr", addr, "was", members[id])
		case addr != members[id]:
			f.o.Logger.Warn("--peers has another address than the cluster: start all servers with the same list", "peer", id, "listed", addr, "addr", members[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.o.Peers)) {
		if members[id] == "" {
			f.o.Logger.Warn("--peers names a server that is no member: add it by: zlock member add ID HOST:PORT", "peer", id, "addr", f.o.Peers[id])
		}
	}
}

// checkReach tells when this server cannot be reached at the address that
// --peers has for it, where it listens on another one.
func (f *forming) checkReach(ctx context.Context) {
	addr := f.o.Peers[f.o.ID]
	if addr == f.o.PeerListen {
		return
	}
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := f.port.Ask(ask, f.o.ID, addr, peer.Question{}); err != nil && ctx.Err() == nil {
		f.o.Logger.Warn("this server does not reach itself at its address in --peers, so the others may not either: correct --peer-addr or --peers",
			"addr", addr, "listening", f.o.PeerListen, "err", err)
	}
}
