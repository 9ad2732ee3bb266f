package consensus

import (
	"context"
	"errors"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/status"
)

// Await waits until a raft future completes or ctx ends, because a future may never complete. It gives raft's
// errors their codes.
func Await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return coded(err)
	case <-ctx.Done():
		return status.With(status.Interrupted, ctx.Err())
	}
}

// coded() gives a raft error its code.
func coded(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return status.With(status.NoLeader, err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return status.With(status.Interrupted, err)
	}
	return err
}
