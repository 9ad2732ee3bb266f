package session

import (
	"context"
	"sync"
	"time"
)

// crowd bounds how many abandoned nodes a client has in a directory. A call whose context ends leaves its
// node to the reaper and returns at once. If calls came and went faster than the reaper removes nodes, the
// number of nodes would grow without bound. So a call that needs a node waits while its directory has more
// than half as many abandoned nodes as calls under way. In a directory, a client never has more than twice as
// many nodes as it has calls and holds.
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

// change adds to a directory's counts and wakes the waiting calls if there is room.
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

// abandon counts nodes that the reaper will remove; gone must follow.
func (c *crowd) abandon(dirs ...string) { c.change(dirs, 0, 1) }

func (c *crowd) gone(dirs ...string) { c.change(dirs, 0, -1) }

// enter counts a call; leave must follow.
func (c *crowd) enter(dirs ...string) { c.change(dirs, 1, 0) }

func (c *crowd) leave(dirs ...string) { c.change(dirs, -1, 0) }

// room returns nil if there is room in dir, and otherwise a channel that closes when there may be
// room.
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

// add changes the number of tasks by n and returns the new number.
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

// wait waits until there is no task, or ctx ends.
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
