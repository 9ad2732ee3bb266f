package take

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// asReader describes the node that stands for a read hold in the place of the writer's node at the path
// `old`.
func (a *attempt) asReader(e *session.Epoch, old string) session.Node {
	id := newNodeID(e.ID())
	// With a policy, the door still has a mark with the writer's id. The reader gets a fresh id, so the mark
	// loses its owner and counts as stale.
	path := recipe.Join(a.Path, recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}.Name(true))
	if !a.Terms.PolicySet {
		// The read node takes the write node's number, so that no waiting writer is before it.
		writer, _, _ := recipe.ParseName(recipe.Base(old))
		name := recipe.NodeName(a.Terms.Layout, recipe.RoleRead, id, a.c.owner.Host)
		path = recipe.Join(recipe.Parent(old), name+fmt.Sprintf("%010d", writer.Seq))
	}
	return session.Node{Create: zk.Create{Path: path, Data: a.data(), ACL: a.Terms.ACL, Mode: zk.Ephemeral}}
}

// upgrade() turns the read hold of a lock with a policy into the write hold, ahead of all waiters.
func (a *attempt) upgrade(ctx context.Context, h *hold.Hold, try bool) error {
	own := h.Nodes()[0]
	reader, _ := recipe.ParsePolicyNode(recipe.Base(own.Path))
	u := &upgrader{policyWaiter: newPolicyWaiter(a, h.Epoch(), reader.ID), h: h, held: own, try: try}
	u.upgrades = true
	_, err := contend(ctx, u)
	if err == nil || !u.closed || u.e.Ended() {
		return err
	}
	// The upgrade has failed, but the read hold remains. The mark of the upgrade would keep the door closed as
	// long as this hold exists, so take the mark back.
	done := u.dir.reopen(u.mark())
	if try {
		session.AwaitGone(ctx, done)
	}
	return err
}

// upgrader is a read hold that contends to become the write hold.
type upgrader struct {
	*policyWaiter
	h    *hold.Hold
	held hold.Node
	try  bool
}

func (u *upgrader) next(ctx context.Context) (turns.Step, error) {
	if err := u.h.Over(); err != nil {
		return turns.Step{}, err
	}
	if err := u.look(ctx); err != nil {
		return turns.Step{}, err
	}
	return turns.DecideUpgrade(u.dir.view(u.a.Terms.Policy), u.id), nil
}

func (u *upgrader) act(ctx context.Context, step turns.Step) (*hold.Hold, error) {
	switch step.Do {
	case turns.Removed:
		if err := u.h.NodeIsGone(ctx, u.held); u.h.Mode() != fence.Exclusive {
			return nil, err
		}
		return u.h, nil // another call has upgraded the hold already
	case turns.Clash:
		return nil, hold.ErrUpgradeConflict
	case turns.CloseDoor:
		if u.try && u.dir.view(u.a.Terms.Policy).OtherHold(u.id) != nil {
			return nil, hold.ErrNotAcquired
		}
		u.closed = true
		// Do not stop if ctx ends. Otherwise the server might set the mark after this client has taken it back, and
		// the mark would stay as long as the read hold.
		return nil, u.dir.setDoor(u.h.Life(), u.mark())
	case turns.Wait:
		if u.try {
			return nil, hold.ErrNotAcquired
		}
		s, gone, err := u.watchNode(ctx, recipe.Join(u.a.dir, step.On.Name(true)))
		if err == nil && !gone {
			err = u.e.RestAwhile(ctx, s.Watch.Fired(), u.h.Life().Done())
		}
		return nil, err
	default: // turns.Grant
		done, err := u.becomeWriter(ctx)
		if done {
			return u.h, err
		}
		return nil, err
	}
}

// becomeWriter carries out the upgrade. It does not stop half way when ctx ends, because the client must know
// which hold it has.
func (u *upgrader) becomeWriter(ctx context.Context) (bool, error) {
	if !u.e.Valid() {
		return false, u.e.AwaitValid(ctx)
	}
	return u.h.BecomeWriter(func() (*hold.Writer, error) {
		n := u.holdNode(turns.UpgradeGrant(u.id))
		made, err := u.e.CreateUntilKnown(u.c.Keeper.Cleaning(), n)
		switch {
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
			u.dir.fresh = false
			return nil, nil
		case err != nil:
			return nil, err
		}
		unmark := u.dir.unmark(u.a.Terms)
		return &hold.Writer{Node: n.Path, Token: fence.Token(made[0].Stat.Czxid), Unmark: unmark}, nil
	})
}
