package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Who waits behind two or more must list once more when the last one ahead is gone,
// because that one may only have waited: a round trip in which nobody holds the
// lock. Where a hold lasts about as long as that, a waiter looks one turn ahead: it
// waits for the contender before the last one, lists then, while the last one most
// likely holds, and so knows that nobody else is ahead when that one goes. This
// costs a request and an event a hold, and a release wakes two instead of one; so
// it is done only where turns are known to be short.

// paces remembers for how long a turn lasted in the queues a client waited in.
type paces struct {
	mu   sync.Mutex
	dirs map[string]time.Duration
}

// pacesKept bounds what is remembered.
const pacesKept = 1024

func (p *paces) note(dir string, turn time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dirs == nil || len(p.dirs) >= pacesKept {
		p.dirs = map[string]time.Duration{}
	}
	p.dirs[dir] = turn
}

// short reports whether turns are known to last no longer than a few times what
// taking a place took: a write and a round trip.
func (p *paces) short(dir string, place time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn, known := p.dirs[dir]
	return known && turn < shortTurn*place
}

const (
	shortTurn = 4
	// shortList is up to how many names a list is cheap beside a turn.
	shortList = 256
)

// lookAhead waits until the contender before the last one is gone, and lists then.
// The last one and the own node are watched in the same flight, for the wait that follows.
func (w *waiter) lookAhead(ctx context.Context, p recipe.Place) (*zk.Names, error) {
	last := join(w.a.dir, p.Blocker.Name)
	if _, err := w.await(ctx, join(w.a.dir, p.Before.Name), p.Ahead-1, false, wakers{}); err != nil {
		return nil, err
	}
	since := w.c.count.wire.Connections.Load()
	pipe := w.e.conn.Pipe()
	node, own, list := pipe.GetW(last), pipe.GetW(w.own.path), pipe.Names(w.a.dir)
	pipe.Send()
	_, err := node.Wait(ctx)
	switch {
	case err == nil:
		w.armed, w.armedAt = node.Watch(), last
	case !errors.Is(err, zk.ErrNoNode):
		return nil, nil // the next look tells why
	}
	mine, err := own.Wait(ctx)
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		if err := w.sawOwn(seen{Node: mine, w: own.Watch()}, err, since); err != nil {
			return nil, err
		}
	}
	names, err := list.Wait(ctx)
	if err != nil {
		return nil, nil //nolint:nilerr // likewise
	}
	return &names, nil
}
