package raftfsm

import (
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state/config"
)

const askTime = time.Second // the time within which a server must report its status

var errAlone = errors.New(
	"this server runs alone, without --peers; start it with --peers to make it part of a cluster")

// ChangeMember adds, promotes or removes a server. Any server of the cluster can be asked. A new server does
// not vote until it is promoted. The promotion is refused while the server is far behind.
func (n *Node) ChangeMember(ctx context.Context, c change.Change) error {
	ctx, cancel := context.WithTimeout(ctx, peer.AnswerTime)
	defer cancel()
	return n.changeMember(ctx, c, true)
}

func (n *Node) changeMember(ctx context.Context, c change.Change, forward bool) error {
	switch {
	case n.port == nil:
		return errAlone
	case !config.IsID(c.ID):
		return errServerID(c.ID)
	}
	if t := n.leader.Term(); t != nil {
		return t.Change(ctx, c)
	}
	if !forward {
		return leading.ErrNotLeading
	}
	_, err := n.askLeader(ctx, peer.Question{Member: &c})
	return err
}

// HandOver gives leadership to the follower with the longest log, and returns when that follower leads or has
// refused.
func (n *Node) HandOver(ctx context.Context) error {
	if n.leader.Term() == nil {
		return leading.ErrNotLeading
	}
	if len(n.raft.Servers()) < 2 {
		return errors.New("there is no other server to lead")
	}
	return consensus.Await(ctx, n.raft.LeadershipTransfer())
}
