package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// breaker lets a waiter remove a holder whose recorded limit is over. It takes the server's time
// from a write of the waiter itself.
type breaker struct {
	node  string
	held  bool             // the node has the stamp of its grant
	since int64            // server time in ms since which the node holds, as far as known
	due   <-chan time.Time // fires when it is time to look again
}

// look removes the node at path if it holds and its time is over. Otherwise it sets the timer for the
// moment when it will be over.
func (b *breaker) look(ctx context.Context, w *waiter, path string, n zk.Node, holds bool) error {
	b.due = nil
	o, ok := recipe.ParseOwner(n.Data)
	limit, breakable := o.Limit()
	if !ok || !breakable || !holds && !o.Held {
		return nil
	}
	now, err := w.write(ctx, func() {})
	if err != nil {
		return err
	}
	if b.node != path || o.Held && !b.held {
		// The node holds since now at the latest, unless its grant is yet to come. In that case its
		// contender stamps the node before it holds, and cannot if this waiter has removed the node.
		b.node, b.held, b.since = path, o.Held, now
	}
	if o.Held {
		b.since = min(b.since, n.Stat.Mtime)
	}
	left := time.Duration(b.since-now)*time.Millisecond + limit
	if left > 0 {
		b.due = time.After(left + 5*time.Millisecond)
		return nil
	}
	w.c.opt.log.Info("breaking a lock held too long", "path", w.a.path, "node", path, "limit", limit)
	if err = w.e.erasePlace(ctx, path); err == nil {
		err = w.e.conn.Delete(ctx, path, n.Stat.Version)
	}
	if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return nil // the watch tells
	}
	b.due = time.After(time.Second) // also if the request may be lost: then no event comes
	return nil
}

// erasePlace removes the place in the queue that a writer with a policy keeps while it holds by the node
// at path. A holder that hangs does not remove it.
func (e *epoch) erasePlace(ctx context.Context, path string) error {
	hold, _ := recipe.ParsePolicyNode(recipe.Base(path))
	if hold.Kind != recipe.HoldWrite {
		return nil
	}
	names, err := e.children(ctx, recipe.Parent(path))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	for _, name := range names {
		if n, _ := recipe.ParsePolicyNode(name); n.ID == hold.ID && n.Kind == recipe.QueueWrite {
			err = e.erase(ctx, recipe.Join(recipe.Parent(path), name))
		}
	}
	return err
}

// target returns the path of a contender's node.
func target(path, node string) string { return (&recipe.Lock{Path: path}).Target(node) }

// Break removes a contender's node, given relative to the lock's path. The token must be the czxid
// of the node, so that Break does not remove another hold than the caller looked at, as far as the
// protocol can tell: it misses a directory that is removed and made again in between, and without
// CREATE on the directory the node's version alone decides. The broken contender loses the lock with
// reason Removed.
func (i *Inspector) Break(ctx context.Context, path, node string, token fence.Token) error {
	return i.c.breakNode(ctx, path, node, token, func(*epoch, zk.Node) error { return nil })
}

// breakNode deletes the node whose czxid is token, if allow agrees. The version of a node without a
// number does not tell it from one made again at the same path. So the transaction also makes and
// removes a sequential node beside it, whose number tells whether any node was made there since the look.
func (c *Client) breakNode(
	ctx context.Context, path, node string, token fence.Token, allow func(*epoch, zk.Node) error,
) error {
	target := target(path, node)
	dir := recipe.Parent(target)
	beside := recipe.Join(dir, "_look_")
	wrapped := int32(math.MinInt32)
	return nodeErr(target, c.steadily(ctx, target, func(e *epoch) error {
		n, err := e.conn.Get(ctx, target)
		if err != nil {
			return err
		}
		if fence.Token(n.Stat.Czxid) != token {
			return fmt.Errorf("%w: %s has token %d", fence.ErrStale, target, n.Stat.Czxid)
		}
		if err := allow(e, n); err != nil {
			return err
		}
		if recipe.Numbered(node) {
			if err = e.conn.Delete(ctx, target, n.Stat.Version); errors.Is(err, zk.ErrBadVersion) {
				return errAgain
			}
			return err
		}
		d, err := e.conn.Exists(ctx, dir)
		if err != nil {
			return err
		}
		is, err := e.conn.Exists(ctx, target)
		if err != nil {
			return err
		}
		if d == nil || is == nil || is.Czxid != n.Stat.Czxid {
			return errAgain
		}
		// The stat has the lower 31 bits of the number, and zlockd's numbers go on below zero: every
		// other attempt is for those.
		wrapped ^= math.MinInt32
		next := int32(uint32(d.Cversion+d.NumChildren)/2) ^ wrapped
		_, err = e.conn.Multi(ctx, zk.Delete{Path: target, Version: n.Stat.Version},
			zk.Create{Path: beside, Mode: zk.PersistentSequential},
			zk.Delete{Path: fmt.Sprintf("%s%010d", beside, next), Version: -1})
		if errors.Is(err, zk.ErrNoAuth) { // nodes may not be made there
			err = e.conn.Delete(ctx, target, n.Stat.Version)
		}
		switch {
		case err == nil:
			return e.erasePlace(ctx, target)
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
			return errAgain
		}
		return err
	}))
}

// breakSettle is how long a holder may take to stamp its grant.
const breakSettle = 2 * time.Second

// BreakExpired removes a holder's node if the holder set [Limit].Break and its maximum hold and
// grace are over by the server's clock. Otherwise it returns ErrNotAcquired. It may wait two
// seconds to be sure.
func (i *Inspector) BreakExpired(ctx context.Context, path, node string, token fence.Token) error {
	c, target := i.c, target(path, node)
	return c.breakNode(ctx, path, node, token, func(e *epoch, n zk.Node) error {
		now, err := c.serverClock(ctx, e, path)
		if err != nil {
			return err
		}
		o, _ := recipe.ParseOwner(n.Data)
		limit, ok := o.Limit()
		since := n.Stat.Ctime
		if o.Held {
			since = n.Stat.Mtime
		}
		left := time.Duration(since-now)*time.Millisecond + limit
		if !ok || left > 0 {
			return fmt.Errorf("%w: %s is not over its limit", ErrNotAcquired, target)
		}
		if o.Held {
			return nil
		}
		q, err := inspect(ctx, e, path)
		if err != nil {
			return err
		}
		if !q.Holds(node) {
			return fmt.Errorf("%w: %s does not hold", ErrNotAcquired, target)
		}
		// There is no stamp: the grant did not wait, or was a moment ago and its stamp is on its way. The
		// stamp changes the version, so that the server refuses the deletion.
		return pause(ctx, breakSettle)
	})
}

// serverClock returns the server's time, from a node that it makes in the directory.
func (c *Client) serverClock(ctx context.Context, e *epoch, dir string) (int64, error) {
	id := newNodeID(e.sid)
	made, _, err := c.create(ctx, e, newNode{Create: zk.Create{
		Path: recipe.Join(dir, "_clock_"+id.Hex()), ACL: zk.WorldACL(zk.PermAll), Mode: zk.Ephemeral,
	}})
	if err != nil {
		return 0, err
	}
	c.reap(e, made[0].path)
	return made[0].stat.Ctime, nil
}

// Revoke asks the contender behind one node of a lock to leave. A holder gets the request by
// [Lease.Revoked]; if it took the lock [WithRevocable], it loses the lock after its grace. A waiter
// leaves the queue. node is the node's path relative to the lock's, as [recipe.Entry] has it.
// Revoke needs WRITE on the node.
func (i *Inspector) Revoke(ctx context.Context, path, node string, r recipe.Revocation) error {
	target := target(path, node)
	made, _, _ := recipe.ParseName(recipe.Base(target))
	if made.Maker == recipe.MakerKazoo || made.Maker == recipe.MakerGo {
		return fmt.Errorf("%w: the program that made %s cannot be asked to leave", ErrUnsupported, target)
	}
	return nodeErr(target, i.c.steadily(ctx, target, func(e *epoch) error {
		return e.update(ctx, target, func(data []byte) ([]byte, error) {
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
