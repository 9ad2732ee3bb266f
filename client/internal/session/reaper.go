package session

import (
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Reap removes nodes of one hold or attempt. The channel closes when they are gone or cannot be
// removed.
func (e *Epoch) Reap(paths ...string) <-chan struct{} { return e.ReapMarked(paths, nil) }

// ReapMarked removes nodes together with the mark that names them, if the mark exists. It removes both in one
// transaction, because once the nodes are gone the mark may belong to another contender.
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
			// The node is gone, or the session may not write the mark.
		}
		return e.deleteEach(ctx, paths...)
	})
}

// AwaitGone waits until the removals end or ctx ends.
func AwaitGone(ctx context.Context, removals ...<-chan struct{}) {
	for _, gone := range removals {
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
}

// deleteEach deletes nodes in one flight of requests. If a node is missing, that is not an error.
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

// ReapFunc repeats f, which removes a node in each of dirs, until f succeeds, the server refuses,
// or the session is over.
func (e *Epoch) ReapFunc(dirs []string, f func(ctx context.Context) error) <-chan struct{} {
	if e.Ended() {
		done := make(chan struct{})
		close(done) // the nodes ended with the session
		return done
	}
	return e.k.LeaveBehind(dirs, func(ctx context.Context) {
		for n := 1; !e.reapOnce(ctx, f); n++ {
			_ = e.Rest(ctx, time.After(Backoff(n, reapFirst, reapLast)))
		}
	})
}

// reapOnce calls f, unless the session or the client is over. It returns true if the work is done.
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

// Pending returns how many nodes wait for their removal, or are being made or removed.
func (k *Keeper) Pending() int { return k.reaper.left.add(0) }

// Enter counts a call in the directories where it may make nodes; Leave must follow.
func (k *Keeper) Enter(dirs ...string) { k.crowd.enter(dirs...) }

// Leave undoes what Enter did.
func (k *Keeper) Leave(dirs ...string) { k.crowd.leave(dirs...) }

// LeaveBehind runs f, which removes a node in each of dirs, in the background. Until f returns, the
// nodes count as abandoned, and Close waits for them; then the channel closes.
func (k *Keeper) LeaveBehind(dirs []string, f func(ctx context.Context)) <-chan struct{} {
	done := make(chan struct{})
	k.crowd.abandon(dirs...)
	k.tellReaper(k.reaper.left.add(len(dirs)))
	k.Detached(func(ctx context.Context) {
		defer close(done)
		f(ctx)
		k.crowd.gone(dirs...)
		k.tellReaper(k.reaper.left.add(-len(dirs)))
	})
	return done
}
