package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Context returns the context for the work under the lock. It ends when the lease is unlocked or
// lost, or when a lease around it ends; after a loss context.Cause is the *LostError. It has the
// values of the context that the lock was taken with, but does not end with it: that context
// limited the wait. [Mutex.Do] runs work that must also end with the caller's context. If a lease
// is unlocked before the leases nested in it, its context ends with the last of them.
func (l *Lease) Context() context.Context { return l.ctx }

// Lost returns a channel that closes when the lease is lost. It stays open after Unlock.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the lease is held, the *LostError after a loss, and
// ErrNotHeld after Unlock.
//
// It looks at the clock, so it is right even in the first instruction after a pause.
func (l *Lease) Err() error {
	l.h.checkNow()
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	switch {
	case l.cause != nil:
		return l.cause
	case l.unlocked:
		return ErrNotHeld
	}
	return nil
}

// Valid reports whether the lease is certainly held at this moment: whether Err is nil.
func (l *Lease) Valid() bool { return l.Err() == nil }

// Until returns when the lease ends if the client does not hear from the server. The time moves on while
// the server answers, but not beyond [WithMaxHold].
func (l *Lease) Until() time.Time {
	if l.Err() != nil {
		return l.h.c.keeper.Now().Wall.Add(-time.Nanosecond)
	}
	return l.h.validUntil()
}

// Check asks the server whether the hold is current. It returns nil if so, and an error that is
// ErrLost if not. It waits for a connection, and sees every release and removal that was complete
// before the call.
func (l *Lease) Check(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	h := l.h
	ctx, end := h.c.keeper.During(ctx)
	defer end()
	nodes := h.nodesNow()
	if len(nodes) > 0 {
		if err := h.e.Conn().Sync(ctx, h.path); err != nil {
			return l.checkErr(ctx, err)
		}
	}
	for _, n := range nodes {
		st, err := h.e.Conn().Exists(ctx, n.path)
		if err != nil {
			return l.checkErr(ctx, err)
		}
		if st == nil || st.EphemeralOwner != h.e.ID() {
			h.awaitChange(ctx)
			if !h.has(n) {
				continue // the hold's mode has changed since
			}
			h.lose(Removed, n)
		}
	}
	return l.Err()
}

// checkErr returns the error of a request about the lease, or made with it.
func (l *Lease) checkErr(ctx context.Context, err error) error {
	if errors.Is(err, ErrSessionExpired) {
		l.h.lose(Expired) // the answer may arrive before the notice of the loss
	}
	if e := l.Err(); e != nil {
		return e
	}
	return errorAt(l.Path(), publicErr(ctx, err))
}

// Path returns the path of the lock, the first one of several.
func (l *Lease) Path() string { return l.h.path }

// Mode returns how the lock is held.
func (l *Lease) Mode() fence.Mode {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.mode
}

// Token returns the number of the hold. It is larger than the tokens of all earlier holds that
// excluded this one. Nested leases and downgraded ones keep the token of their hold. A set of several
// locks has no token of its own, and Token returns 0: see [Lease.Sequencers].
func (l *Lease) Token() fence.Token {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.h.token
}

// Sequencer describes the hold to a third party. That party asks a [fence.Gate] or
// [Client.CheckSequencer] whether the hold is current. For a lease of several locks it describes
// the first one.
func (l *Lease) Sequencer() fence.Sequencer { return l.Sequencers()[0] }

// Sequencers describes the hold node by node, for leases of several locks.
func (l *Lease) Sequencers() []fence.Sequencer {
	h := l.h
	if h.parts != nil {
		var all []fence.Sequencer
		for _, p := range h.parts {
			all = append(all, p.Sequencers()...)
		}
		return all
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []fence.Sequencer
	for _, n := range h.nodes {
		if n.place {
			continue
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(n.path, h.path), "/")
		all = append(all, fence.Sequencer{Path: h.path, Node: rel, Mode: l.mode, Token: h.token})
	}
	return all
}

// Slots returns the numbers of a lease's permits, from 1 to the number of permits, one for each. No other
// holder has the same number until the permits are given back. For a lease of several locks it returns the
// numbers of all its semaphores. A lease without permits has none.
//
// It returns an error that is ErrNoSlots if a permit without a number, of Curator's semaphore or of release
// 0.1.0, was in use when these were granted: it is unknown what its holder uses. Permits of [LayoutKazoo]
// never have numbers. The lease is held in any case.
func (l *Lease) Slots() ([]int, error) {
	h := l.h
	if h.parts != nil {
		var all []int
		for _, p := range h.parts {
			slots, err := p.Slots()
			if err != nil {
				return nil, err
			}
			all = append(all, slots...)
		}
		return all, nil
	}
	if h.unnumbered != nil {
		return nil, errorAt(h.path, h.unnumbered)
	}
	var all []int
	for _, n := range h.nodesNow() {
		if slot := recipe.SlotOf(recipe.Base(n.path)); slot > 0 {
			all = append(all, slot)
		}
	}
	return all, nil
}

// Node returns the path of the node that stands for the hold, the first one of
// several.
func (l *Lease) Node() string { return l.Nodes()[0] }

// Nodes returns the paths of all nodes of the hold.
func (l *Lease) Nodes() []string { return pathsOf(l.h.nodesNow()) }

// Asked delivers the first request to give the lock back. See [WithRevocable] for a holder that ignores it.
func (l *Lease) Asked() <-chan recipe.Revocation { return l.revoked }

// Txn carries out all of the operations or none, and only if the server says that the lease is held
// at that moment; no clock and no token is involved. It returns what each operation did. If the
// lock is gone, the error is ErrLost. If the server refuses an operation, a *zk.MultiError says
// which. An error that is zk.ErrUncertain says that the outcome is unknown.
func (l *Lease) Txn(ctx context.Context, ops ...zk.Op) ([]zk.Result, error) {
	h := l.h
	ctx, end := h.c.keeper.During(ctx)
	defer end()
	for {
		if err := l.Err(); err != nil {
			return nil, err
		}
		nodes := h.nodesNow()
		all := make([]zk.Op, 0, len(nodes)+len(ops))
		for _, n := range nodes {
			all = append(all, zk.Check{Path: n.path, Version: -1})
		}
		res, err := h.e.Conn().Multi(ctx, append(all, ops...)...)
		if err == nil {
			return res[len(nodes):], nil
		}
		refused, ok := errors.AsType[*zk.MultiError](err)
		switch {
		case isAmbiguous(err) && ctx.Err() != nil:
			return nil, errorAt(l.Path(), fmt.Errorf("%w: %w", zk.ErrUncertain, endOf(ctx)))
		case !ok:
			return nil, l.checkErr(ctx, err)
		case refused.Index >= len(nodes):
			own := *refused
			own.Index -= len(nodes)
			return nil, errorAt(l.Path(), publicErr(ctx, &own))
		case !errors.Is(err, zk.ErrNoNode):
			return nil, l.checkErr(ctx, err)
		}
		// A node of the hold is gone: lost, or replaced by a change of mode.
		if h.awaitChange(ctx); h.has(nodes[refused.Index]) {
			h.lose(Removed, nodes[refused.Index])
		}
	}
}

// CheckSequencer asks the server whether the hold that s describes is current. It returns nil if
// so, and an error that is [fence.ErrStale] if not. The client is a [fence.Checker].
func (c *Client) CheckSequencer(ctx context.Context, s fence.Sequencer) error {
	path := s.NodePath()
	var st *zk.Stat
	err := c.steadily(ctx, path, func(e *session.Epoch) error {
		err := e.Conn().Sync(ctx, path)
		if err == nil {
			st, err = e.Conn().Exists(ctx, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	if st == nil {
		return fmt.Errorf("%w: %s is gone", fence.ErrStale, path)
	}
	born, name := fence.Token(st.Czxid), recipe.Base(s.Node)
	made, _, _ := recipe.ParseName(name)
	// A downgraded hold has a newer node than its token says. The name of that node is unique, so it
	// is enough that the node exists.
	if born == s.Token || s.Mode == fence.Shared && born > s.Token &&
		(made.Maker == recipe.MakerSelf || recipe.IsPolicyNode(name)) {
		return nil
	}
	return fmt.Errorf("%w: %s has token %d", fence.ErrStale, path, born)
}

var _ fence.Checker = (*Client)(nil)

// unlockEach unlocks all parts at the same time, and returns the first error.
func unlockEach(ctx context.Context, parts []*Lease) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, l := range parts {
		wg.Go(func() { errs[i] = l.Unlock(ctx) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// releaseEach releases all parts without waiting for the server, and returns the first error.
func releaseEach(parts []*Lease) error {
	var first error
	for _, l := range parts {
		first = cmp.Or(first, l.Release())
	}
	return first
}
