package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/inspect"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/waits"
	"github.com/zlockd/zlockd/client/zk"
)

// Inspector has the calls for operators. They work on any lock, also one that this client does not use. They
// show the holders and waiters, and take a lock back.
type Inspector struct {
	c      *Client
	passed func(path string)
}

// Inspector returns the calls for operators.
func (c *Client) Inspector() *Inspector { return &Inspector{c: c} }

// Passing returns an Inspector whose Walk and WaitGraph call passed() for each directory that they skip
// because the client may not read it.
func (i *Inspector) Passing(passed func(path string)) *Inspector { return &Inspector{i.c, passed} }

// Inspect reads the holders and the waiters of a lock. It recognises the layout. A path that does
// not exist has neither holders nor waiters.
func (i *Inspector) Inspect(ctx context.Context, path string) (*recipe.Queue, error) {
	var q *recipe.Queue
	err := i.c.steadily(ctx, path, func(e *session.Epoch) error {
		err := e.Conn().Sync(ctx, path)
		if err == nil {
			q, err = inspect.Lock(ctx, e, path)
		}
		return err
	})
	return q, err
}

// Contender reads one contender by the path of its node.
func (i *Inspector) Contender(ctx context.Context, node string) (c recipe.Entry, err error) {
	err = i.c.steadily(ctx, node, func(e *session.Epoch) error {
		c, err = inspect.Contender(ctx, e, node)
		return err
	})
	return c, err
}

// Walk calls f for every directory at or below root ("/" for all) that looks like a lock: one that has
// contenders, or data that this package put there. It goes no deeper than depth levels below root: depth 1
// means root and its children, and a negative depth has no limit. Walk ends with the first error of f. It
// skips directories that the client may not read; see [Inspector.Passing].
func (i *Inspector) Walk(ctx context.Context, root string, depth int, f func(*recipe.Queue) error) error {
	if root != "/" {
		if err := checkPath(root); err != nil {
			return err
		}
	}
	c := i.c
	ctx, end := c.keeper.During(ctx)
	defer end()
	e, err := c.keeper.Await(ctx)
	if err != nil {
		return err
	}
	if err := e.Conn().Sync(ctx, root); err != nil {
		return hold.ErrorAt(root, hold.PublicErr(ctx, err))
	}
	return hold.ErrorAt(root, hold.PublicErr(ctx, inspect.Walk(ctx, e, root, depth, i.passed, f)))
}

// WaitGraph reads every lock at or below root and returns which contenders wait for which. Contenders that
// wait inside one process have no node, so WaitGraph does not see them; use [WithOwnPlace] for locks where
// that matters.
func (i *Inspector) WaitGraph(ctx context.Context, root string) (*recipe.Graph, error) {
	var list []recipe.Queue
	err := i.Walk(ctx, root, -1, func(q *recipe.Queue) error {
		list = append(list, *q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return waits.Graph(list), nil
}

// target() returns the path of a contender's node.
func target(path, node string) string { return (&recipe.Lock{Path: path}).Target(node) }

// Break removes a contender's node. The argument `node` is relative to the lock's path. The token must be the
// czxid of the node, so that Break removes exactly the hold that the caller looked at. The protocol leaves
// two gaps in this check. Break does not notice if the directory was removed and made again after Break had
// read the node. And if the client lacks the permission CREATE on the directory, Break compares only the
// node's version. The contender loses the lock with reason Removed.
func (i *Inspector) Break(ctx context.Context, path, node string, token fence.Token) error {
	return i.breakNode(ctx, path, node, token, func(zk.Node) error { return nil })
}

// BreakExpired removes a holder's node if a note in the node says that the maximum hold is over (see
// [WithMaxHold]). A holder writes the note only if it has [WithLinger] and its program still runs. Without
// the note BreakExpired returns ErrNotAcquired.
func (i *Inspector) BreakExpired(ctx context.Context, path, node string, token fence.Token) error {
	return i.breakNode(ctx, path, node, token, func(n zk.Node) error {
		if o, _ := recipe.ParseOwner(n.Data); !o.Over {
			return fmt.Errorf("%w: %s is not over its limit", ErrNotAcquired, target(path, node))
		}
		return nil
	})
}

func (i *Inspector) breakNode(
	ctx context.Context, path, node string, token fence.Token, allow func(zk.Node) error,
) error {
	target := target(path, node)
	return nodeErr(target, i.c.steadily(ctx, target, inspect.Break(ctx, target, token, allow)))
}

// Revoke asks the contender that owns one node of a lock to leave. A holder gets the request by
// [Lease.Asked]. A holder that took the lock with [WithRevocable] also loses the lock when its grace is over.
// A waiter leaves the queue. The argument `node` is the node's path relative to the lock's path, as in
// [recipe.Entry]. Revoke needs WRITE on the node.
func (i *Inspector) Revoke(ctx context.Context, path, node string, r recipe.Revocation) error {
	target := target(path, node)
	made, _, _ := recipe.ParseName(recipe.Base(target))
	if made.Maker == recipe.MakerKazoo || made.Maker == recipe.MakerGo {
		return fmt.Errorf("%w: the program that made %s cannot be asked to leave", ErrUnsupported, target)
	}
	return nodeErr(target, i.c.steadily(ctx, target, func(e *session.Epoch) error {
		return inspect.Revoke(ctx, e, target, r)
	}))
}

// nodeErr is the error of an operation on a contender's node.
func nodeErr(node string, err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %s", ErrNotHeld, node)
	}
	return err
}
