package form

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// List holds --id and --peers: the servers that the operator of one server has listed, and this server's id.
type List struct {
	ID        uint32
	Peers     map[uint32]string // addresses by id; empty: a cluster of one server without a peer port
	Observers []uint32          // the servers of Peers that have no vote when the cluster forms
}

// Observes reports whether a peer has no vote when the cluster forms.
func (l *List) Observes(id uint32) bool { return slices.Contains(l.Observers, id) }

// NoVoter is an id that no server can have.
const NoVoter = config.MaxID + 1

// FirstVoter returns the lowest id among the peers that have a vote, or NoVoter.
func (l *List) FirstVoter() uint32 {
	first := uint32(NoVoter)
	for id := range l.Peers {
		if !l.Observes(id) {
			first = min(first, id)
		}
	}
	return first
}

// Self returns the address by which raft knows this server.
func (l *List) Self() raft.ServerAddress {
	if addr := l.Peers[l.ID]; addr != "" {
		return raft.ServerAddress(addr)
	}
	return "local"
}

// String returns the list in the form of --peers.
func (l *List) String() string { return listed(l.Peers, l.Observers) }

func listed(peers map[uint32]string, observers []uint32) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		part := fmt.Sprintf("%d=%s", id, peers[id])
		if slices.Contains(observers, id) {
			part += ":observer"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// Compare writes to the log how this server's --peers differs from the members of its cluster. Members change
// at run time, so --peers may be older or newer than the cluster. The server serves in both cases.
func (f *Forming) Compare(servers []raft.Server) {
	members := map[uint32]string{}
	for _, s := range servers {
		members[peer.ParseID(s.ID)] = string(s.Address)
	}
	if len(members) == 0 || f.port == nil {
		return // the leader will send the members, or this server is alone
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		switch addr, listed := f.o.List.Peers[id]; {
		case !listed:
			f.o.Log.Warn("a member is missing in --peers: list it, or remove it by: zlock member remove ID",
				"peer", id, "addr", members[id])
		case addr != members[id] && id == f.o.List.ID:
			f.o.Log.Info("the cluster knows this server at another address; this server tells the others "+
				"its new address",
				"addr", addr, "was", members[id])
		case addr != members[id]:
			f.o.Log.Warn("--peers and the cluster differ in an address: start all servers with the same list",
				"peer", id, "listed", addr, "addr", members[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.o.List.Peers)) {
		if members[id] == "" {
			f.o.Log.Warn("--peers names a server that is not a member: add it by zlock member add ID HOST:PORT",
				"peer", id, "addr", f.o.List.Peers[id])
		}
	}
}
