package take

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// lookOwn reads and watches the waiter's own node.
func (w *waiter) lookOwn(ctx context.Context) error {
	since := w.c.Keeper.Connections()
	s, err := w.e.See(ctx, w.Path, true)
	return w.saw(s, err, since)
}

// saw() records what See() has found out about the waiter's own node. The argument `since` is the number of
// the connection that was used.
func (w *waiter) saw(s session.Seen, err error, since uint64) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return w.displaced()
	case err != nil:
		return err
	case s.Listed:
		// The own node was only in the directory's list, so this watch is on the directory.
		w.own, w.since = s.Watch, since
		return nil
	case s.Stat.EphemeralOwner != w.e.ID():
		return w.displaced() // another client made a node of the same name
	}
	w.own, w.since = s.Watch, since
	if r, ok := recipe.RevocationIn(s.Data); ok {
		w.c.Keeper.Log().Info("waiter asked to leave", "path", w.a.Path, "by", r.By, "reason", r.Reason)
		return w.c.Cause(hold.Loss{Path: w.a.Path, Node: w.Path, Reason: hold.Revoked})
	}
	return nil
}

// watchOwn sets a watch on the waiter's own node, unless there is one.
func (w *waiter) watchOwn(ctx context.Context) error {
	if w.own != nil && !session.IsClosed(w.own.Fired()) {
		return nil
	}
	return w.lookOwn(ctx)
}

// stays() reports whether the waiter's own node has been there since its watch was set. After a reconnect,
// the server may report first that the awaited node is gone, and only then that the own node is gone. So
// stays() returns false after a reconnect, and the waiter must list the directory.
func (w *waiter) stays() bool {
	return w.own != nil && !session.IsClosed(w.own.Fired()) && w.since == w.c.Keeper.Connections()
}

// displaced() returns the error for a waiter whose own node is gone.
func (w *waiter) displaced() error {
	if w.e.Ended() {
		return zk.ErrSessionExpired
	}
	return &requeueError{ErrNodeRemoved}
}

// sit() waits for the time d. It fails early if the waiter's own node is gone.
func (w *waiter) sit(ctx context.Context, d time.Duration) error {
	over := time.Now().Add(d)
	for left := d; left > 0; left = time.Until(over) {
		if err := w.watchOwn(ctx); err != nil {
			return err
		}
		if err := w.e.Rest(ctx, time.After(left), w.own.Fired()); err != nil {
			return err
		}
	}
	return nil
}

// A waiter with two or more contenders ahead watches the last of them, its blocker. When the blocker is gone,
// the waiter must list once more, because the blocker may have left without holding the lock. During this
// round trip no contender holds the lock. So if holds are about as short as a round trip, the waiter lists
// one turn earlier: when the contender before the blocker is gone, most likely while the blocker holds the
// lock. When the blocker goes too, the waiter already knows that no other contender is ahead. This costs one
// more request and one more event for each hold, and a release wakes two waiters instead of one. So waiters
// do it only if they know that turns are short.

// paces remembers how long a turn lasted in the queues that a client waited in.
type paces struct {
	mu   sync.Mutex
	dirs map[string]time.Duration
}

// pacesKept bounds how many queues paces remembers.
const pacesKept = 1024

func (p *paces) note(dir string, turn time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dirs == nil || len(p.dirs) >= pacesKept {
		p.dirs = map[string]time.Duration{}
	}
	p.dirs[dir] = turn
}

// short() reports whether turns in dir are known to be shorter than shortTurn times `place`. The argument
// `place` is the time in which the waiter got its place, with one write and one round trip.
func (p *paces) short(dir string, place time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn, known := p.dirs[dir]
	return known && turn < shortTurn*place
}

const (
	shortTurn = 4
	// A list of at most shortList names is cheap compared with a turn.
	shortList = 256
)

// lookAhead waits for the end of p.Before, the contender just ahead of p.Blocker, and then lists the
// directory. With the list request it sets watches on p.Blocker and on the waiter's own node, for the wait
// that follows.
func (w *waiter) lookAhead(ctx context.Context, p turns.Place) (*zk.Names, error) {
	last := recipe.Join(w.a.dir, p.Blocker.Name)
	if _, err := w.await(ctx, recipe.Join(w.a.dir, p.Before.Name), p.Ahead-1, wakers{}); err != nil {
		return nil, err
	}
	watch, names, err := w.watchBoth(ctx, last, true)
	w.armed, w.armedAt = watch, last
	return names, err
}

// tryLook looks at the queue before a call that may not wait writes anything. A server that lags behind may
// show a released lock as taken, so tryLook refuses the call only after a sync.
func tryLook(ctx context.Context, e *session.Epoch, dir string, look func() error) error {
	err := look()
	if !errors.Is(err, hold.ErrNotAcquired) {
		return err
	}
	if err := e.Conn().Sync(ctx, dir); err != nil {
		return err
	}
	return look()
}
