package session

import (
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// reaper removes abandoned nodes. No caller's context bounds it: each removal is a goroutine of its
// own. It goes on until the node is gone, the server refuses for good, or the session is over and
// the node with it.
type reaper struct {
	slots chan struct{} // one for each removal on the wire
	left  tasks         // nodes still to be removed, or whose creation or removal is under way
}

const (
	reapFirst    = 50 * time.Millisecond
	reapLast     = 5 * time.Second
	reapParallel = 128
)

// Reap removes nodes of one hold or attempt. The channel closes when they are gone or cannot be
// removed.
func (e *Epoch) Reap(paths ...string) <-chan struct{} { return e.ReapMarked(paths, nil) }

// ReapMarked is Reap for nodes and for the mark that names them, if there is one, in one step: once
// the nodes are gone, the mark may belong to another contender.
func (e *Epoch) ReapMarked(paths []string, unmark []zk.Op) <-chan struct{} {
	dirs := make([]string, len(paths))
	ops := make([]zk.Op, len(paths))
	for i, p := range paths {
		dirs[i], ops[i] = recipe.Parent(p), zk.Delete{Path: p, Version: -1}
	}
	return e.ReapFunc(dirs, func(ctx context.Context) error {
		if unmark != nil {
			_, err := e.conn.Multi(ctx, append(ops, unmark...)...)
			if !zk.IsRefusal(err) {
				return err
			}
			// One is gone, or the mark may not be written.
		}
		return e.deleteEach(ctx, paths...)
	})
}

// AwaitGone waits until the removals end, or ctx does.
func AwaitGone(ctx context.Context, removals ...<-chan struct{}) {
	for _, gone := range removals {
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
}

// deleteEach deletes nodes in one flight. A node that is gone is no error.
func (e *Epoch) deleteEach(ctx context.Context, paths ...string) error {
	p := e.conn.Pipe()
	replies := make([]*zk.Reply[struct{}], len(paths))
	for i, path := range paths {
		replies[i] = p.Delete(zk.Delete{Path: path, Version: -1})
	}
	p.Send()
	var failed error
	for _, r := range replies {
		if _, err := r.Wait(ctx); err != nil && !errors.Is(err, zk.ErrNoNode) {
			failed = err
		}
	}
	return failed
}

// reapLost removes what became of the creation of nodes, if anything did.
func (e *Epoch) reapLost(nodes []Node) {
	e.ReapFunc(Dirs(nodes), func(ctx context.Context) error {
		dir := nodes[0].Dir()
		names, err := e.relist(ctx, dir)
		if err != nil {
			return err
		}
		var paths []string
		for _, n := range nodes {
			for _, name := range n.in(names) {
				paths = append(paths, recipe.Join(dir, name))
			}
		}
		return e.deleteEach(ctx, paths...)
	})
}

// ReapFunc repeats f, which removes a node in each of dirs, until f succeeds, the server refuses,
// or the session is over.
func (e *Epoch) ReapFunc(dirs []string, f func(ctx context.Context) error) <-chan struct{} {
	if e.Ended() {
		done := make(chan struct{})
		close(done) // they went with the session
		return done
	}
	return e.k.LeaveBehind(dirs, func(ctx context.Context) {
		for n := 1; !e.reapOnce(ctx, f); n++ {
			_ = e.Rest(ctx, time.After(Backoff(n, reapFirst, reapLast)))
		}
	})
}

// reapOnce calls f, unless the session or the client is over, and reports whether nothing is left to
// do.
func (e *Epoch) reapOnce(ctx context.Context, f func(ctx context.Context) error) bool {
	e.k.reaper.slots <- struct{}{}
	defer func() { <-e.k.reaper.slots }()
	if e.Ended() || ctx.Err() != nil {
		return true
	}
	switch err := f(ctx); {
	case err == nil, errors.Is(err, zk.ErrNoNode), e.Ended():
		return true
	case zk.IsRefusal(err) && !errors.Is(err, zk.ErrThrottled):
		e.k.opt.Log.Warn("abandoned node cannot be removed before the session ends", "err", err)
		return true
	}
	return false
}

func (k *Keeper) tellReaper(pending int) {
	if k.opt.LeftBehind != nil {
		k.opt.LeftBehind(pending)
	}
}

// Pending returns how many nodes are still to be removed, or are being made or removed.
func (k *Keeper) Pending() int { return k.reaper.left.add(0) }
