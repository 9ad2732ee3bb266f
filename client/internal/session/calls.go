package session

import (
	"context"
	"errors"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Children lists the children of a node.
func (e *Epoch) Children(ctx context.Context, path string) ([]string, error) {
	names, _, err := e.conn.Children(ctx, path)
	return names, err
}

// relist lists a directory after a write whose outcome is unknown. It syncs first, because the server might
// not have applied the write yet.
func (e *Epoch) relist(ctx context.Context, dir string) ([]string, error) {
	if err := e.conn.Sync(ctx, dir); err != nil {
		return nil, err
	}
	return e.Children(ctx, dir)
}

// List lists the children of a node. If `watch` is set, it watches the list for a change.
func (e *Epoch) List(ctx context.Context, path string, watch bool) ([]string, *zk.Watch, error) {
	if !watch {
		names, err := e.Children(ctx, path)
		return names, nil, err
	}
	names, _, w, err := e.conn.ChildrenW(ctx, path)
	return names, w, err
}

// IsClosed reports whether a channel is closed.
func IsClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// FiredOf returns the channel that closes when w fires. If w is nil, FiredOf returns nil.
func FiredOf(w *zk.Watch) <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.Fired()
}

// Seen is what See() has found out about a node, with the watch that fires when the node ends.
type Seen struct {
	zk.Node
	Listed bool      // See() found the node only in the list of its directory
	Watch  *zk.Watch // watches the node or its directory; nil: the session may watch neither
	Hidden bool      // the session may not read the node, so its watch may miss the node's end
}

// See reads and watches a node. The error ErrNoNode says that the node is gone. See() tries getData first,
// because an exists request would set a watch even if the node is gone. If the session may neither read nor
// stat the node, See() looks for it in the directory's list. It watches the directory only if watchDir is
// set, because that watch also wakes for every other child.
func (e *Epoch) See(ctx context.Context, path string, watchDir bool) (s Seen, err error) {
	if s.Node, s.Watch, err = e.conn.GetW(ctx, path); !errors.Is(err, zk.ErrNoAuth) {
		return s, err
	}
	s.Hidden = true
	st, w, err := e.conn.ExistsW(ctx, path)
	switch {
	case err == nil && st == nil:
		return s, zk.ErrNoNode
	case err == nil:
		s.Stat, s.Watch = *st, w
		return s, nil
	case !errors.Is(err, zk.ErrNoAuth):
		return s, err
	}
	s.Listed = true
	var names []string
	names, s.Watch, err = e.List(ctx, recipe.Parent(path), watchDir)
	if err == nil && !slices.Contains(names, recipe.Base(path)) {
		err = zk.ErrNoNode
	}
	return s, err
}

// Update replaces a node's data with the result of f. It starts over if another client changes the data
// before the write, or if the outcome is unknown. If f returns nil, Update leaves the data unchanged.
func (e *Epoch) Update(ctx context.Context, path string, f func(data []byte) ([]byte, error)) error {
	return Again(ctx, func() error {
		have, err := e.conn.Get(ctx, path)
		if err != nil {
			return err
		}
		fresh, err := f(have.Data)
		if fresh == nil || err != nil {
			return err
		}
		_, err = e.conn.Set(ctx, path, fresh, have.Stat.Version)
		if errors.Is(err, zk.ErrBadVersion) {
			return ErrAgain
		}
		return err
	})
}

// Erase repeats the deletion of a node until the node is gone.
func (e *Epoch) Erase(ctx context.Context, path string) error {
	err := Again(ctx, func() error { return e.conn.Delete(ctx, path, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// makeDir makes a directory and the missing nodes above it, including those of the chroot. It makes
// containers, or persistent nodes if the server has no containers. The server may remove a container between
// any two steps, so the caller repeats makeDir and its create until both succeed.
func (e *Epoch) makeDir(ctx context.Context, dir string, acl []zk.ACL) error {
	mode := zk.Container
	if e.k.noContainers.Load() {
		mode = zk.Persistent
	}
	err := e.conn.MakePath(ctx, dir, mode, acl)
	if mode == zk.Container && (errors.Is(err, zk.ErrBadArguments) || errors.Is(err, zk.ErrUnimplemented)) {
		// Either the server has no containers, or the path is wrong. If the path is wrong, the server refuses
		// a persistent node too.
		if err = e.conn.MakePath(ctx, dir, zk.Persistent, acl); err == nil {
			e.k.noContainers.Store(true)
		}
	}
	return err
}
