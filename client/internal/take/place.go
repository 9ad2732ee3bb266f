package take

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// lookOwn reads and watches the own node.
func (w *waiter) lookOwn(ctx context.Context) error {
	since := w.c.Keeper.Connections()
	s, err := w.e.See(ctx, w.Path, true)
	return w.saw(s, err, since)
}

// saw records the result of a look at the own node. The argument `since` is the number of the connection.
func (w *waiter) saw(s session.Seen, err error, since uint64) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return w.displaced()
	case err != nil:
		return err
	case s.Listed:
		w.own, w.since = s.Watch, since // a watch on the directory, which lists the node
		return nil
	case s.Stat.EphemeralOwner != w.e.ID():
		return w.displaced() // another client made a node of that name
	}
	w.own, w.since = s.Watch, since
	if r, ok := recipe.RevocationIn(s.Data); ok {
		w.c.Keeper.Log().Info("waiter asked to leave", "path", w.a.Path, "by", r.By, "reason", r.Reason)
		return w.c.Cause(hold.Loss{Path: w.a.Path, Node: w.Path, Reason: hold.Revoked})
	}
	return nil
}

// watchOwn sets a watch on the own node, unless there is one.
func (w *waiter) watchOwn(ctx context.Context) error {
	if w.own != nil && !session.IsClosed(w.own.Fired()) {
		return nil
	}
	return w.lookOwn(ctx)
}

// stays() reports whether the own node has been there since its watch was set. After a reconnect, the server
// may report the end of the awaited node before the end of the own node. Then the waiter must list.
func (w *waiter) stays() bool {
	return w.own != nil && !session.IsClosed(w.own.Fired()) && w.since == w.c.Keeper.Connections()
}

// displaced returns the error for an own node that is gone.
func (w *waiter) displaced() error {
	if w.e.Ended() {
		return zk.ErrSessionExpired
	}
	return &requeueError{ErrNodeRemoved}
}

// sit waits for the time d. It fails early if the own node is gone.
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

// A waiter with two or more contenders ahead watches the last of them. When the last one is gone, the waiter
// must list once more, because the last one may have left without holding the lock. During this round trip no
// contender holds the lock. So if holds are about as short as a round trip, a waiter looks one turn earlier.
// It waits for the contender before the last one and then lists, most likely while the last one holds the
// lock. When the last one goes, the waiter already knows that no other contender is ahead. This costs one
// more request and one more event for each hold, and a release wakes two waiters instead of one. So waiters
// look ahead only if they know that turns are short.

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

// short() reports whether turns in dir are known to be short: a turn takes at most a few times as long as it
// took to get a place. A place costs one write and one round trip, and the argument `place` is the time that
// they took.
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

// lookAhead waits until the contender before the last one is gone, and lists then. Together with the list it
// sets watches on the last one and on the own node, for the wait that follows.
func (w *waiter) lookAhead(ctx context.Context, p turns.Place) (*zk.Names, error) {
	last := recipe.Join(w.a.dir, p.Blocker.Name)
	if _, err := w.await(ctx, recipe.Join(w.a.dir, p.Before.Name), p.Ahead-1, wakers{}); err != nil {
		return nil, err
	}
	watch, names, err := w.watchBoth(ctx, last, true)
	w.armed, w.armedAt = watch, last
	return names, err
}

// delayRecord encodes the mark of a holder; an empty holder takes the mark back.
func delayRecord(holder string) []byte { return recipe.Record{Holder: &holder}.Encode() }

// lockDelay waits if the last holder went away without unlocking. A writer then marks the directory with its
// own id. A reader leaves no mark, because its end needs no delay. It removes the mark of the dead holder, so
// that the next reader need not wait again. While lockDelay waits, the own node remains the first. lockDelay
// overwrites only marks of contenders, never the data of another program.
func (w *waiter) lockDelay(ctx context.Context, names []string) error {
	own, writes := w.id.UUID(), w.q.Kind.Exclusive()
	for {
		dir, err := w.e.Conn().Get(ctx, w.a.dir)
		if err != nil {
			return err
		}
		rec, ok := recipe.ParseRecord(dir.Data)
		if !ok || rec.Limit != 0 || rec.Layout != "" {
			return fmt.Errorf("%w: lock delay: the data of %s were written for another purpose",
				hold.ErrUnsupported, w.a.dir)
		}
		marked := rec.Holder != nil && *rec.Holder != ""
		if marked && *rec.Holder != own && !lives(names, *rec.Holder) {
			left, err := w.delayLeft(ctx, &dir, rec)
			switch {
			case errors.Is(err, zk.ErrBadVersion): // another client wrote, or the first of two requests succeeded
				continue
			case err != nil:
				return err
			case left > 0 && w.a.Try:
				return hold.ErrNotAcquired
			case left > 0:
				w.c.Keeper.Log().Info("last holder did not unlock, waiting", "path", w.a.Path, "left", left)
				w.late = true
				if err := w.sit(ctx, left); err != nil {
					return err
				}
				continue
			}
		}
		holder := ""
		switch {
		case writes:
			holder = own
			w.unmark = []zk.Op{zk.SetData{Path: w.a.dir, Data: delayRecord(""), Version: dir.Stat.Version + 1}}
		case !marked:
			return nil
		}
		err = w.setMark(ctx, &dir, delayRecord(holder))
		switch {
		case errors.Is(err, zk.ErrBadVersion):
			w.unmark = nil
			continue
		case !writes && errors.Is(err, zk.ErrNoAuth):
			return nil // the reader has waited anyway
		}
		return err
	}
}

// delayLeft returns how much is left of the lock delay after a dead holder. If no contender has marked the
// holder as dead yet, delayLeft does it, so that the server stamps the time.
func (w *waiter) delayLeft(ctx context.Context, dir *zk.Node, rec recipe.Record) (time.Duration, error) {
	delay := w.a.Terms.LockDelay
	if !rec.Dead {
		rec.Dead = true
		err := w.setMark(ctx, dir, rec.Encode())
		if errors.Is(err, zk.ErrNoAuth) && !w.q.Kind.Exclusive() { // without a stamp, the reader uses its own clock
			if w.deathSeen.IsZero() {
				w.deathSeen = time.Now()
			}
			return delay - time.Since(w.deathSeen), nil
		}
		if err != nil {
			return 0, err
		}
	}
	return turns.DelayLeft(delay, dir.Stat.Mtime, w.Stat.Ctime, time.Since(w.born)), nil
}

// setMark writes the data of the directory at the version seen.
func (w *waiter) setMark(ctx context.Context, dir *zk.Node, data []byte) error {
	return session.Again(ctx, func() error {
		st, err := w.e.Conn().Set(ctx, w.a.dir, data, dir.Stat.Version)
		if err == nil {
			dir.Stat = st
		}
		return err
	})
}

// lives reports whether the list contains a node with this id, with or without hyphens.
func lives(names []string, uuid string) bool {
	hex := strings.ReplaceAll(uuid, "-", "")
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.Contains(n, uuid) || strings.Contains(n, hex)
	})
}

// alone() returns an error if a client holds or awaits a lock of another kind on the path. The argument names
// is the list of the path's children.
func alone(ctx context.Context, e *session.Epoch, path string, own turns.Use, names []string) error {
	var flight []string
	for name, u := range own.Rivals(names) {
		child := recipe.Join(path, name)
		if u != turns.UsePermits {
			if flight = append(flight, child); len(flight) == rivalsAtOnce {
				if err := noneLives(ctx, e, flight); err != nil {
					return err
				}
				flight = flight[:0]
			}
			continue
		}
		permits, err := e.Children(ctx, child)
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
		for _, p := range permits {
			if cont, _, ok := recipe.ParseName(p); ok && cont.Kind == recipe.RoleLease {
				return anotherKind(child)
			}
		}
	}
	return noneLives(ctx, e, flight)
}

func anotherKind(path string) error {
	return fmt.Errorf("%w: %s belongs to another kind of lock", recipe.ErrMixedLayout, path)
}

// rivalsAtOnce is how many nodes noneLives looks at in one flight of requests. A directory may have thousands
// of lasting nodes with such names, and a contender looks at them before each grant.
const rivalsAtOnce = 256

// noneLives returns an error if one of the nodes belongs to a session. A lasting node is no contender.
func noneLives(ctx context.Context, e *session.Epoch, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	p := e.Conn().Pipe()
	replies := make([]*zk.Reply[*zk.Stat], len(paths))
	for i, path := range paths {
		replies[i] = p.Exists(path)
	}
	p.Send()
	for i, path := range paths {
		st, err := replies[i].Wait(ctx)
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
		if st != nil && st.EphemeralOwner != 0 {
			return anotherKind(path)
		}
	}
	return nil
}

// aloneNow lists the path and calls alone(), for an attempt that may not have listed the path since it made
// its node.
func aloneNow(
	ctx context.Context, e *session.Epoch, path string, own turns.Use, listed *zk.Names,
) error {
	if listed == nil {
		names, err := e.Conn().Names(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		listed = &names
	}
	return alone(ctx, e, path, own, listed.List())
}

// tryLook looks at the queue before a try writes. A server that lags behind may show a released lock as
// taken, so tryLook refuses the try only after a sync.
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
