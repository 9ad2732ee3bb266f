package client

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// erasePlace removes the queue node that a writer under a policy keeps while its hold node is at path. A
// holder that hangs does not remove it itself.
func erasePlace(ctx context.Context, e *session.Epoch, path string) error {
	hold, _ := recipe.ParsePolicyNode(recipe.Base(path))
	if hold.Kind != recipe.HoldWrite {
		return nil
	}
	names, err := e.Children(ctx, recipe.Parent(path))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	for _, name := range names {
		if n, _ := recipe.ParsePolicyNode(name); n.ID == hold.ID && n.Kind == recipe.QueueWrite {
			err = e.Erase(ctx, recipe.Join(recipe.Parent(path), name))
		}
	}
	return err
}

// target returns the path of a contender's node.
func target(path, node string) string { return (&recipe.Lock{Path: path}).Target(node) }

// Break removes a contender's node, given relative to the lock's path. The token must be the czxid of the
// node, so that Break removes exactly the hold that the caller looked at. The protocol has two gaps: Break
// cannot see that a directory was removed and made again in between, and without CREATE on the directory it
// compares only the node's version. The broken contender loses the lock with reason Removed.
func (i *Inspector) Break(ctx context.Context, path, node string, token fence.Token) error {
	return i.c.breakNode(ctx, path, node, token, func(zk.Node) error { return nil })
}

// breakNode deletes the node whose czxid is token, if allow agrees. A node without a number that was made
// again at the same path has the same version. So the transaction also makes and removes a sequential node
// beside it, whose number shows whether any node was made there since the look.
func (c *Client) breakNode(
	ctx context.Context, path, node string, token fence.Token, allow func(zk.Node) error,
) error {
	target := target(path, node)
	dir := recipe.Parent(target)
	beside := recipe.Join(dir, "_look_")
	wrapped := int32(math.MinInt32)
	return nodeErr(target, c.steadily(ctx, target, func(e *session.Epoch) error {
		n, err := e.Conn().Get(ctx, target)
		if err != nil {
			return err
		}
		if fence.Token(n.Stat.Czxid) != token {
			return fmt.Errorf("%w: %s has token %d", fence.ErrStale, target, n.Stat.Czxid)
		}
		if err := allow(n); err != nil {
			return err
		}
		if recipe.Numbered(node) {
			if err = e.Conn().Delete(ctx, target, n.Stat.Version); errors.Is(err, zk.ErrBadVersion) {
				return session.ErrAgain
			}
			return err
		}
		d, err := e.Conn().Exists(ctx, dir)
		if err != nil {
			return err
		}
		is, err := e.Conn().Exists(ctx, target)
		if err != nil {
			return err
		}
		if d == nil || is == nil || is.Czxid != n.Stat.Czxid {
			return session.ErrAgain
		}
		// The stat has only the lower 31 bits of the number, and zlockd's numbers continue below zero. So
		// every other try assumes a negative number.
		wrapped ^= math.MinInt32
		next := int32(uint32(d.Cversion+d.NumChildren)/2) ^ wrapped
		_, err = e.Conn().Multi(ctx, zk.Delete{Path: target, Version: n.Stat.Version},
			zk.Create{Path: beside, Mode: zk.PersistentSequential},
			zk.Delete{Path: fmt.Sprintf("%s%010d", beside, next), Version: -1})
		if errors.Is(err, zk.ErrNoAuth) { // this client may not make nodes there
			err = e.Conn().Delete(ctx, target, n.Stat.Version)
		}
		switch {
		case err == nil:
			return erasePlace(ctx, e, target)
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
			return session.ErrAgain
		}
		return err
	}))
}

// BreakExpired removes a holder's node if the holder itself has noted in it that its maximum hold is over
// (see [WithMaxHold] and [WithLinger]: its program has not ended). Otherwise it returns ErrNotAcquired.
func (i *Inspector) BreakExpired(ctx context.Context, path, node string, token fence.Token) error {
	return i.c.breakNode(ctx, path, node, token, func(n zk.Node) error {
		if o, _ := recipe.ParseOwner(n.Data); !o.Over {
			return fmt.Errorf("%w: %s is not over its limit", ErrNotAcquired, target(path, node))
		}
		return nil
	})
}

// Revoke asks the contender behind one node of a lock to leave. A holder gets the request by
// [Lease.Asked]; if it took the lock [WithRevocable], it loses the lock after its grace. A waiter
// leaves the queue. node is the node's path relative to the lock's, as [recipe.Entry] has it.
// Revoke needs WRITE on the node.
func (i *Inspector) Revoke(ctx context.Context, path, node string, r recipe.Revocation) error {
	target := target(path, node)
	made, _, _ := recipe.ParseName(recipe.Base(target))
	if made.Maker == recipe.MakerKazoo || made.Maker == recipe.MakerGo {
		return fmt.Errorf("%w: the program that made %s cannot be asked to leave", ErrUnsupported, target)
	}
	return nodeErr(target, i.c.steadily(ctx, target, func(e *session.Epoch) error {
		return e.Update(ctx, target, func(data []byte) ([]byte, error) {
			if _, asked := recipe.RevocationIn(data); asked {
				return nil, nil
			}
			return recipe.AskBack(data, made.Maker, r), nil
		})
	}))
}

// nodeErr is the error of an operation on a contender's node.
func nodeErr(node string, err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %s", ErrNotHeld, node)
	}
	return err
}
