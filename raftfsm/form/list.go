package form

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// List holds --id and --peers: the servers that the operator of one server has listed, and this server's id.
type List struct {
	ID        uint32
	Peers     map[uint32]string // addresses; empty: a cluster of one without a peer port
	Observers []uint32          // the servers of Peers that have no vote when the cluster forms
}

// Observes reports whether a peer has no vote when the cluster forms.
func (l *List) Observes(id uint32) bool { return slices.Contains(l.Observers, id) }

// NoVoter is an id that no server can have.
const NoVoter = state.MaxServerID + 1

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
