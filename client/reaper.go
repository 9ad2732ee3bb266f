package client

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

// reap removes nodes of one hold or attempt. The channel closes when they are gone or cannot be
// removed.
func (e *epoch) reap(paths ...string) <-chan struct{} { return e.reapMarked(paths, nil) }

// reapMarked is reap for nodes and for the mark that names them, if there is one, in one step: once
// the nodes are gone, the mark may belong to another contender.
func (e *epoch) reapMarked(paths []string, unmark []zk.Op) <-chan struct{} {
	dirs := make([]string, len(paths))
	ops := make([]zk.Op, len(paths))
	for i, p := range paths {
		dirs[i], ops[i] = recipe.Parent(p), zk.Delete{Path: p, Version: -1}
	}
	return e.reapFunc(dirs, func(ctx context.Context) error {
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

// awaitGone waits until the removals end, or ctx does.
func awaitGone(ctx context.Context, removals ...<-chan struct{}) {
	for _, gone := range removals {
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
}

// deleteEach deletes nodes in one flight. A node that is gone is no error.
func (e *epoch) deleteEach(ctx context.Context, paths ...string) error {
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
func (e *epoch) reapLost(nodes []newNode) {
	e.reapFunc(dirsOf(nodes), func(ctx context.Context) error {
		dir := nodes[0].dir()
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

// reapFunc repeats f, which removes a node in each of dirs, until f succeeds, the server refuses,
// or the session is over.
func (e *epoch) reapFunc(dirs []string, f func(ctx context.Context) error) <-chan struct{} {
	if e.ended() {
		done := make(chan struct{})
		close(done) // they went with the session
		return done
	}
	return e.k.leaveBehind(dirs, func(ctx context.Context) {
		for n := 1; !e.reapOnce(ctx, f); n++ {
			_ = e.rest(ctx, time.After(backoff(n, reapFirst, reapLast)))
		}
	})
}

// reapOnce calls f, unless the session or the client is over, and reports whether nothing is left to
// do.
func (e *epoch) reapOnce(ctx context.Context, f func(ctx context.Context) error) bool {
	e.k.reaper.slots <- struct{}{}
	defer func() { <-e.k.reaper.slots }()
	if e.ended() || ctx.Err() != nil {
		return true
	}
	switch err := f(ctx); {
	case err == nil, errors.Is(err, zk.ErrNoNode), e.ended():
		return true
	case zk.IsRefusal(err) && !errors.Is(err, zk.ErrThrottled):
		e.k.opt.log.Warn("abandoned node cannot be removed before the session ends", "err", err)
		return true
	}
	return false
}

func (k *keeper) tellReaper(pending int) {
	k.behind(pending)
}
