package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// Probe asks the leader and the other members whether a server could be the member `id` at an address. If no
// server runs at the address, that is not an error.
func (n *Node) Probe(ctx context.Context, id uint32, addr string) (*status.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*askTime)
	defer cancel()
	return n.probe(ctx, peer.Place{ID: id, Addr: addr}, true)
}

func (n *Node) probe(ctx context.Context, place peer.Place, forward bool) (*status.Found, error) {
	switch {
	case n.port == nil:
		return nil, errAlone
	case !config.IsID(place.ID):
		return nil, errServerID(place.ID)
	case n.leader.Term() == nil && !forward:
		return nil, leading.ErrNotLeading
	case n.leader.Term() == nil:
		st, err := n.askLeader(ctx, peer.Question{Probe: &place})
		return st.Probed, err
	}
	servers := n.raft.Servers()
	for _, s := range servers {
		if id := peer.ParseID(s.ID); string(s.Address) == place.Addr && id != place.ID {
			return nil, fmt.Errorf("server %d is at %s already", id, place.Addr)
		}
	}
	asked, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := n.port.Ask(asked, place.ID, place.Addr, peer.Question{})
	var refused *peer.Refusal
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("the server at %s cannot become server %d: %s",
			place.Addr, place.ID, refused.Reason)
	case err != nil:
		return &status.Found{Progress: status.Progress{Waits: err.Error()}}, nil
	}
	found := &status.Found{Progress: progressOf(&st), At: st.Peers[place.ID],
		Known: st.Cluster == n.disk.Identity().Cluster && st.Incarnation == n.incarnationOf(place.ID)}
	if st.Cluster == "" && !namesOne(st.Peers, servers) {
		theirs := form.List{Peers: st.Peers, Observers: st.Observers}
		return nil, fmt.Errorf(
			"server %d was started with --peers %s, which name no member: it would not find this cluster. "+
				"Start it with a list of the members and itself", place.ID, theirs.String())
	}
	t := n.leader.Term()
	if t == nil {
		return nil, leading.ErrNotLeading
	}
	if err := t.TooOld(place.ID, &st); err != nil {
		return nil, err
	}
	if err := n.addresses.reached(ctx, servers, place); !errors.Is(err, errUnreached) {
		return found, err
	}
	return found, nil
}

// namesOne reports whether a list of --peers names at least one member.
func namesOne(peers map[uint32]string, servers []raft.Server) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return peers[peer.ParseID(s.ID)] != "" })
}
