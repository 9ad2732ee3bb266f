package raftfsm

import (
	"context"
	"errors"
	"syscall"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// askLeader forwards a question to the leader that raft knows here, when this server does not lead.
func (n *Node) askLeader(ctx context.Context, q peer.Question) (peer.Status, error) {
	id, at := n.raft.Known()
	switch {
	case n.port == nil:
		return peer.Status{}, errAlone
	case id == 0:
		return peer.Status{}, n.serving.NoLeader()
	case id == n.id:
		// Raft says that this server leads, but its term has not begun yet or is over.
		return peer.Status{}, errNotLeading
	}
	st, err := n.askAt(ctx, id, at, q)
	if errors.Is(err, syscall.ECONNREFUSED) {
		// The leader is gone, and raft has not noticed yet; nothing was asked.
		return peer.Status{}, n.serving.NoLeader()
	}
	return st, err
}

// askAt asks the leader at the first address of leaderAddrs, and at the next if the connection is refused.
// The error is ECONNREFUSED if all connections are refused.
func (n *Node) askAt(ctx context.Context, id uint32, says string,
	q peer.Question) (st peer.Status, err error) {
	for _, addr := range n.leaderAddrs(id, says) {
		st, err = n.port.Ask(ctx, id, addr, q)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return st, err
}

// leaderAddrs returns the possible addresses of the leader, the likeliest first: the one in the list of
// members, and the one that the leader gives of itself, which raft passes on. A server that does not know the
// members yet has only the second.
func (n *Node) leaderAddrs(id uint32, says string) []string {
	known := n.addresses.of(id)
	if known == "" || known == says {
		return []string{says}
	}
	return []string{known, says}
}
