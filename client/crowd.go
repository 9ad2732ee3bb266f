package client

import (
	"context"
	"sync"
)

// crowd bounds how many abandoned nodes a client has in a directory. A call whose context ends
// leaves its node to the reaper and returns at once. If calls came and went faster than the reaper
// removes nodes, the number of nodes would grow without bound. So a call that needs a node waits
// while its directory has more abandoned nodes than half the calls under way there. A directory
// never has more than twice as many nodes of a client as calls and holds.
type crowd struct {
	mu   sync.Mutex
	dirs map[string]*crowdDir // entries that are not all zero
}

type crowdDir struct {
	calls     int           // under way, whether they have a node or not
	abandoned int           // nodes, and requests for nodes, that no call needs
	waiting   chan struct{} // closed when there may be room; nil without a waiting call
}

// full reports whether no node may be added.
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

// abandon notes nodes that will be removed; gone must follow.
func (c *crowd) abandon(dirs ...string) { c.change(dirs, 0, 1) }
func (c *crowd) gone(dirs ...string)    { c.change(dirs, 0, -1) }

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

// room waits until nodes may be added to the directories.
func (c *Client) room(ctx context.Context, e *epoch, dirs ...string) error {
	for _, dir := range dirs {
		for wait := c.crowd.room(dir); wait != nil; wait = c.crowd.room(dir) {
			if err := e.rest(ctx, nil, wait); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveBehind runs f, which removes a node in each of dirs, in the background. Until f returns, the
// nodes count as abandoned.
func (c *Client) leaveBehind(dirs []string, f func(ctx context.Context)) {
	c.crowd.abandon(dirs...)
	c.detached(func(ctx context.Context) {
		f(ctx)
		c.crowd.gone(dirs...)
	})
}
