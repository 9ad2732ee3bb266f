package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Reap removes nodes of one hold or attempt. The channel closes when they are gone or cannot be
// removed.
func (e *Epoch) Reap(paths ...string) <-chan struct{} { return e.ReapMarked(paths, nil) }

// ReapMarked removes nodes, and with them the mark of a lock delay that names them, if it exists. It does
// both in one transaction: once the nodes are gone, the mark may belong to another contender.
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
			// The transaction was refused: a node is gone, or the mark may not be removed. Delete the nodes alone.
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

// ReapFunc repeats f, which removes a node in each of `dirs`, until f succeeds, the server refuses, or the
// session is over.
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

// Enter counts a call in the directories where it may make nodes. A call of Leave must follow.
func (k *Keeper) Enter(dirs ...string) { k.crowd.enter(dirs...) }

// Leave undoes what Enter did.
func (k *Keeper) Leave(dirs ...string) { k.crowd.leave(dirs...) }

// LeaveBehind runs f, which removes a node in each of `dirs`, in the background. The channel closes when f
// has returned. Until then the nodes count as abandoned, and Close waits for them.
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

// crowd bounds how many abandoned nodes a client has in a directory. A call whose context ends leaves its
// node to the reaper and returns at once. If calls came and went faster than the reaper removes nodes, the
// number of nodes would grow without bound. So a call that needs a node waits while its directory has too
// many abandoned nodes: more than half the number of calls under way. So a client never has in a directory
// more than twice as many nodes as it has calls and holds.
type crowd struct {
	mu   sync.Mutex
	dirs map[string]*crowdDir // contains only directories with a count above zero
}

type crowdDir struct {
	calls     int           // running calls, with or without a node
	abandoned int           // nodes that no call needs any longer, and requests that may create such nodes
	waiting   chan struct{} // closed when there may be room; nil: no call waits
}

// full() reports whether the client must not add another node.
func (d *crowdDir) full() bool { return d.abandoned > max(1, d.calls/2) }

// change() adds to a directory's counts and wakes the waiting calls if there is room.
func (c *crowd) change(dirs []string, calls, abandoned int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs == nil {
		c.dirs = map[string]*crowdDir{}
	}
	for _, dir := range dirs {
		d := c.dirs[dir]
		if d == nil {
			d = &crowdDir{}
			c.dirs[dir] = d
		}
		d.calls += calls
		d.abandoned += abandoned
		if d.waiting != nil && !d.full() {
			close(d.waiting)
			d.waiting = nil
		}
		if d.calls == 0 && d.abandoned == 0 {
			delete(c.dirs, dir)
		}
	}
}

// abandon() counts nodes that the reaper will remove; a call of gone() must follow.
func (c *crowd) abandon(dirs ...string) { c.change(dirs, 0, 1) }

func (c *crowd) gone(dirs ...string) { c.change(dirs, 0, -1) }

// enter() counts a call; a call of leave() must follow.
func (c *crowd) enter(dirs ...string) { c.change(dirs, 1, 0) }

func (c *crowd) leave(dirs ...string) { c.change(dirs, -1, 0) }

// room() returns nil if there is room in dir, and otherwise a channel that closes when there may be room.
func (c *crowd) room(dir string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.dirs[dir]
	if d == nil || !d.full() {
		return nil
	}
	if d.waiting == nil {
		d.waiting = make(chan struct{})
	}
	return d.waiting
}

// tasks counts running work. Unlike a sync.WaitGroup it may grow while a goroutine waits.
type tasks struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when there are no tasks; nil: no goroutine waits
}

// add() changes the number of tasks by n and returns the new number.
func (t *tasks) add(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += n
	if t.n == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
	return t.n
}

// wait() waits until there is no task, or ctx ends.
func (t *tasks) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n > 0 && t.none == nil {
		t.none = make(chan struct{})
	}
	none, idle := t.none, t.n == 0
	t.mu.Unlock()
	if idle {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return CtxErr(ctx)
	}
}

// reaper removes abandoned nodes. Each removal has a goroutine of its own, and no caller's context bounds it.
// A removal continues until the node is gone, the server refuses for good, or the session and its nodes have
// ended.
type reaper struct {
	slots chan struct{} // has a slot for each removal under way
	left  tasks         // nodes whose creation or removal is running, or that wait for their removal
}

const (
	reapFirst    = 50 * time.Millisecond
	reapLast     = 5 * time.Second
	reapParallel = 128
)
