package inspect

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

// Break returns a function that deletes the node at `target` if its czxid is `token` and allow() returns no
// error. The function is safe to repeat. The node's version cannot show that a node without a number was
// removed and made again at the same path. So the deletion is a transaction that also makes and removes a
// sequential node in the directory. The number of that node shows whether any node was made in the directory
// after `target` was read.
func Break(
	ctx context.Context, target string, token fence.Token, allow func(zk.Node) error,
) func(*session.Epoch) error {
	dir := recipe.Parent(target)
	beside := recipe.Join(dir, "_look_")
	wrapped := int32(math.MinInt32)
	return func(e *session.Epoch) error {
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
		if recipe.Numbered(target) {
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
		// The transaction must guess the number of the sequential node that it makes and removes. The directory's
		// stat gives only the lower 31 bits of it, and zlockd's numbers continue below zero when they wrap. So
		// assume a positive and a negative number in turn.
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
	}
}

// erasePlace removes the queue node that a writer under a policy keeps while its hold node is at `path`. A
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

// Revoke asks the contender that made the node to leave, unless the node already contains such a request.
func Revoke(ctx context.Context, e *session.Epoch, target string, r recipe.Revocation) error {
	made, _, _ := recipe.ParseName(recipe.Base(target))
	return e.Update(ctx, target, func(data []byte) ([]byte, error) {
		if _, asked := recipe.RevocationIn(data); asked {
			return nil, nil
		}
		return recipe.AskBack(data, made.Maker, r), nil
	})
}

// Contender reads one contender by the path of its node.
func Contender(ctx context.Context, e *session.Epoch, node string) (recipe.Entry, error) {
	n, err := e.Conn().Get(ctx, node)
	if err != nil {
		return recipe.Entry{}, err
	}
	st := n.Stat
	c := recipe.Entry{Node: recipe.Base(node), Session: recipe.Session(st.EphemeralOwner), Token: st.Czxid,
		Since: st.Ctime, Version: st.Version}
	if o, ok := recipe.ParseOwner(n.Data); ok {
		if c.Owner = &o; o.Held {
			c.HeldSince = st.Mtime
		}
	}
	return c, nil
}
