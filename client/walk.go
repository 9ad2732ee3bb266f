package client

import (
	"context"
	"errors"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Walk calls f for every directory at or below root ("/" for all) that looks like a lock: one that
// has contenders, or data that this package put there. It goes no deeper than depth levels below
// root: depth 1 means root and its children, and a negative depth has no limit. Walk ends with the
// first error of f.
func (i *Inspector) Walk(ctx context.Context, root string, depth int, f func(*recipe.Queue) error) error {
	if root != "/" {
		if err := checkPath(root); err != nil {
			return err
		}
	}
	c := i.c
	ctx, end := c.during(ctx)
	defer end()
	e, err := c.epoch(ctx)
	if err != nil {
		return err
	}
	if err := e.conn.Sync(ctx, root); err != nil {
		return errorAt(root, publicErr(ctx, err))
	}
	return errorAt(root, publicErr(ctx, c.walk(ctx, e, root, depth, f)))
}

func (c *Client) walk(
	ctx context.Context, e *epoch, path string, depth int, f func(*recipe.Queue) error,
) error {
	list, err := e.conn.Names(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return nil
	}
	if err != nil {
		return err
	}
	names := list.List()
	slices.Sort(names)
	is, err := c.looksLikeLock(ctx, e, path, names, list.Stat)
	if err != nil {
		return err
	}
	if is {
		q, err := inspect(ctx, e, path)
		if err != nil {
			return err
		}
		if err := f(q); err != nil {
			return err
		}
		if q.Kind == recipe.KindSemaphore {
			return nil // its parts are no locks of their own
		}
	}
	if depth == 0 {
		return nil
	}
	for _, n := range names {
		if path == "/" && n == "zookeeper" && c.session().Chroot() == "" || is && recipe.IsContender(n) {
			continue
		}
		if err := c.walk(ctx, e, recipe.Join(path, n), depth-1, f); err != nil {
			return err
		}
	}
	return nil
}

// looksLikeLock reports whether the children or the data of a directory say that it is a lock.
func (c *Client) looksLikeLock(
	ctx context.Context, e *epoch, path string, names []string, st zk.Stat,
) (bool, error) {
	switch {
	case path == "/" || st.EphemeralOwner != 0:
		return false, nil
	case slices.Contains(names, recipe.PermitsName):
		return true, nil
	}
	live, err := c.anyLive(ctx, e, path, names)
	if live || err != nil || st.DataLength == 0 || st.DataLength > recipe.MaxOwnerData {
		return live, err
	}
	n, err := e.conn.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return false, nil
	}
	rec, ok := recipe.ParseRecord(n.Data)
	return ok && rec.ZL == 1 || len(names) > 0 && recipe.IsKazooSemaphore(names, string(n.Data)), err
}

// anyLive reports whether a child with the name of a contender is ephemeral: a lasting node with
// such a name is no contender.
func (c *Client) anyLive(ctx context.Context, e *epoch, path string, names []string) (bool, error) {
	for _, n := range names {
		if n != recipe.SimpleName && !recipe.IsContender(n) {
			continue
		}
		st, err := e.conn.Exists(ctx, recipe.Join(path, n))
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return false, err
		}
		if err != nil || st != nil && st.EphemeralOwner != 0 {
			return true, nil
		}
	}
	return false, nil
}

// WaitGraph reads every lock at or below root and returns which contenders wait for which.
// Contenders that wait inside one process have no node, so WaitGraph does not see them; give locks
// [WithoutLocalQueue] where that matters.
func (i *Inspector) WaitGraph(ctx context.Context, root string) (*recipe.Graph, error) {
	var list []recipe.Queue
	err := i.Walk(ctx, root, -1, func(q *recipe.Queue) error {
		list = append(list, *q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return recipe.WaitGraph(list), nil
}
