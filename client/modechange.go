package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
)

// modeChange is the replacement of a hold's nodes by an upgrade or a downgrade. The
// hold's mutex is held for its methods. While one is under way nobody can say which
// nodes stand for the hold: a release and a monitor wait for its end.
type modeChange struct {
	end chan struct{} // closed when the one under way has ended; nil while there is none
}

func (m *modeChange) begin() { m.end = make(chan struct{}) }

func (m *modeChange) done() {
	close(m.end)
	m.end = nil
}

// beginChange announces that a node of the hold will be replaced; endChange that
// h.replace was called or the change failed. Changes come one after another, and
// none begins when the hold is over: then it returns false.
func (h *hold) beginChange() bool {
	for {
		h.mu.Lock()
		former := h.change.end
		over := h.over
		if !over && former == nil {
			h.change.begin()
		}
		h.mu.Unlock()
		if over || former == nil {
			return !over
		}
		<-former
	}
}

func (h *hold) endChange() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.change.done()
}

func (h *hold) awaitChange(ctx context.Context) {
	h.mu.Lock()
	ch := h.change.end
	h.mu.Unlock()
	if ch == nil {
		return
	}
	select {
	case <-ch:
	case <-ctx.Done():
	}
}

// Downgrade turns a write lock into a read lock without letting a writer in
// between. The token stays.
func (l *Lease) Downgrade(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	h := l.h
	h.mu.Lock()
	if h.over || h.mode != fence.Exclusive || len(h.leases) > 1 {
		h.mu.Unlock()
		if err := l.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%w: only a write lock that is not nested can be downgraded", ErrUnsupported)
	}
	h.mu.Unlock()
	return h.downgrade(ctx)
}

// downgrade runs detached: a write whose reply is lost must be followed up. What
// was lost meanwhile leaves no node behind; a release waits for the change.
func (h *hold) downgrade(ctx context.Context) error {
	res := make(chan error, 1)
	h.c.detached(func(bg context.Context) { res <- h.downgradeOnce(bg) })
	select {
	case err := <-res:
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		return publicErr(err)
	case <-ctx.Done():
		return ctxErr(ctx)
	}
}

func (h *hold) downgradeOnce(ctx context.Context) error {
	if !h.beginChange() {
		return h.overErr()
	}
	var err error
	if h.modeNow() == fence.Exclusive { // not if another call was first
		err = h.ops.downgrade(ctx, h)
	}
	if err == nil {
		h.setLeaseModes(fence.Shared)
	}
	h.endChange()
	if lost := h.lossNow(); lost != nil {
		h.abandon()
		return lost
	}
	return err
}

// lossNow is the loss as an error, nil if the hold was not lost.
func (h *hold) lossNow() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lostErr()
}

// overErr says why nothing can be done with a hold that is over.
func (h *hold) overErr() error {
	if lost := h.lossNow(); lost != nil {
		return lost
	}
	return ErrNotHeld
}

func (h *hold) setLeaseModes(m fence.Mode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases {
		l.setMode(m)
	}
}

// Upgrade turns a read lock into a write lock, ahead of everyone who waits. If
// another reader is upgrading it fails at once with ErrUpgradeConflict: one of the
// two must give up its read lock. It needs [WithPolicy]; other layouts answer
// ErrUnsupported.
func (l *Lease) Upgrade(ctx context.Context) error { return l.upgrade(ctx, false) }

// TryUpgrade is Upgrade, but fails with ErrNotAcquired if other readers hold the lock.
func (l *Lease) TryUpgrade(ctx context.Context) error { return l.upgrade(ctx, true) }

func (l *Lease) upgrade(ctx context.Context, try bool) error {
	if err := l.Err(); err != nil {
		return err
	}
	h := l.h
	h.mu.Lock()
	wrong := h.mode != fence.Shared || len(h.leases) > 1
	h.mu.Unlock()
	if wrong {
		return fmt.Errorf("%w: only a read lock that is not nested can be upgraded", ErrUnsupported)
	}
	if err := h.ops.upgrade(ctx, h, try); err != nil {
		if e := l.Err(); e != nil && !errors.Is(err, ErrUpgradeConflict) {
			return e
		}
		return publicErr(err)
	}
	l.setMode(fence.Exclusive)
	return nil
}
