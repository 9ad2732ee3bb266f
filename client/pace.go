package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// When the last contender ahead is gone, a waiter behind two or more must list once more, because
// that contender may only have waited: a round trip in which no contender holds the lock. Where a
// hold lasts about as long as that, a waiter looks one turn ahead. It waits for the contender
// before the last one and lists then, most likely while the last one holds. So it knows that no
// other contender is ahead when the last one goes. This costs a request and an event a hold, and a
// release wakes two instead of one; so waiters do it only where turns are known to be short.

// paces remembers how long a turn lasted in the queues that a client waited in.
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
	// shortList is the number of names up to which a list is cheap beside a turn.
	shortList = 256
)

// lookAhead waits until the contender before the last one is gone, and lists then. In the same
// flight it watches the last one and the own node, for the wait that follows.
func (w *waiter) lookAhead(ctx context.Context, p recipe.Place) (*zk.Names, error) {
	last := recipe.Join(w.a.dir, p.Blocker.Name)
	if _, err := w.await(ctx, recipe.Join(w.a.dir, p.Before.Name), p.Ahead-1, false, wakers{}); err != nil {
		return nil, err
	}
	since := w.c.count.wire.Connections.Load()
	pipe := w.e.conn.Pipe()
	node, own, list := pipe.GetW(last), pipe.GetW(w.path), pipe.Names(w.a.dir)
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
		if err := w.saw(seen{Node: mine, w: own.Watch()}, err, since); err != nil {
			return nil, err
		}
	}
	names, err := list.Wait(ctx)
	if err != nil {
		return nil, nil //nolint:nilerr // likewise
	}
	return &names, nil
}
