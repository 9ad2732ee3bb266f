package take

import (
	"time"

	"github.com/zlockd/zlockd/client/recipe"
)

// The functions of this file are only for tests of packages that ask for locks.

// WaitHere returns how many contenders wait in the process for their turn.
func (c *Client) WaitHere(layout recipe.Layout, path string) int {
	return c.localQueues.waiting(localKey{layout, path})
}

func (g *localQueues) waiting(key localKey) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.m[key])
}

// ShortTurns makes the client believe that turns in the queue of a directory are short.
func (c *Client) ShortTurns(dir string) { c.paces.note(dir, time.Nanosecond) }

// OwnWatchIn returns how long a waiter with this many contenders ahead waits before it watches its own node.
func OwnWatchIn(timeout time.Duration, ahead int) time.Duration { return ownWatchIn(timeout, ahead) }
