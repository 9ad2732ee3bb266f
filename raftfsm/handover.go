package raftfsm

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/status"
)

// HandOver gives leadership to the follower that is furthest, and returns when
// that follower leads or refused.
func (n *Node) HandOver(ctx context.Context) error {
	if n.term.Load() == nil {
		return errNotLeading
	}
	if len(n.raft.Servers()) < 2 {
		return errors.New("there is nobody to lead instead")
	}
	return await(ctx, n.raft.LeadershipTransfer())
}

// handOverTo gives leadership to a voter.
func (t *term) handOverTo(ctx context.Context, id uint32, s *raft.Server) error {
	switch {
	case id == t.n.id:
		return nil
	case s == nil:
		return status.Errorf(status.NotMember, "server %d is not a member", id)
	case s.Suffrage != raft.Voter:
		return fmt.Errorf("server %d has no vote: only voters lead", id)
	}
	if at, ours, ok := t.caughtUp(ctx, id); !ok {
		return t.notReady(ctx, s, at, ours)
	}
	if err := await(ctx, t.n.raft.LeadershipTransferToServer(s.ID, s.Address)); err != nil {
		return status.Errorf(status.Interrupted, "server %d did not take over: %w", id, err)
	}
	return nil
}
