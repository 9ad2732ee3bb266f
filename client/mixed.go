package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Different kinds of locks on one path do not exclude each other by themselves: each looks only at
// nodes of its own kind. So an attempt makes its node and then, before the grant, looks through the
// children of the directory for holders of other kinds. Of two that come at the same time at least
// one sees the other, because each makes its node first. Where there may be no node to see, the
// kind is in the data of the directory.

// use is what a directory is used for, as far as kinds of locks exclude each other.
type use uint8

const (
	useQueue       use = iota // numbered nodes: queueOf tells their kinds apart
	usePolicy                 // read-write lock with a policy
	useSimple                 // one node named lock, of another program
	usePermits                // semaphore with nodes in leases
	useBarePermits            // kazoo's semaphore: nodes named by an id alone
)

// useOf returns the use that the name of a directory's child reveals.
func useOf(name string) (use, bool) {
	switch {
	case name == recipe.SimpleName:
		return useSimple, true
	case name == recipe.PermitsName:
		return usePermits, true
	case recipe.IsPolicyNode(name):
		return usePolicy, true
	}
	if c, _, ok := recipe.ParseName(name); ok && c.Kind != recipe.RoleLease {
		return useQueue, true
	}
	if _, ok := recipe.ParseHex(name); ok {
		return useBarePermits, true
	}
	return 0, false
}

// alone fails if a client holds, or waits for, a lock of another kind on the path. names are the
// path's children.
func (c *Client) alone(ctx context.Context, e *epoch, path string, own use, names []string) error {
	for _, name := range names {
		if name[0] == '_' && own == useQueue {
			continue // most are contenders of the queue itself
		}
		u, ok := useOf(name)
		if !ok || u == own {
			continue
		}
		child, live := recipe.Join(path, name), false
		if u == usePermits {
			permits, err := e.children(ctx, child)
			if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
				return err
			}
			for _, p := range permits {
				cont, _, ok := recipe.ParseName(p)
				live = live || ok && cont.Kind == recipe.RoleLease
			}
		} else {
			st, err := e.conn.Exists(ctx, child)
			if err != nil && !errors.Is(err, zk.ErrNoAuth) {
				return err
			}
			live = st != nil && st.EphemeralOwner != 0 // a lasting node of this name is no contender
		}
		if live {
			return fmt.Errorf("%w: %s is of another kind of lock", ErrMixedLayout, child)
		}
	}
	return nil
}

// aloneNow is alone for an attempt that may not have listed the path since it made its node.
func (c *Client) aloneNow(ctx context.Context, e *epoch, path string, own use, listed *zk.Names) error {
	if listed == nil {
		names, err := e.conn.Names(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		listed = &names
	}
	return c.alone(ctx, e, path, own, listed.List())
}
