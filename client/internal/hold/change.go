package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/zk"
)

// replace() records the mode and the node of the hold after an upgrade or a downgrade. If `token` is 0, the
// hold keeps its token.
func (h *Hold) replace(mode fence.Mode, token fence.Token, unmark []zk.Op, path string) {
	h.mu.Lock()
	h.nodes, h.mode, h.unmark = []Node{{Path: path}}, mode, unmark
	if token != 0 {
		h.token = token
	}
	h.mu.Unlock()
	h.watchNodes()
}

// Downgrade turns a write lock into a read lock; no writer gets in between. The lease keeps its token.
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
		return ErrorAt(h.g.Path,
			fmt.Errorf("%w: only a write lock that is not nested can be downgraded", ErrUnsupported))
	}
	h.mu.Unlock()
	return h.downgrade(ctx, l)
}

// downgrade() turns the write hold into a read hold, unless a lease other than l needs the write hold. It
// does not end with ctx, because it must find out the outcome of a write whose reply is lost. A hold lost
// during the change leaves no node behind. A release waits for the change.
func (h *Hold) downgrade(ctx context.Context, l *Lease) error {
	res := make(chan error, 1)
	h.s.Keeper.Detached(func(bg context.Context) { res <- h.downgradeOnce(bg, l) })
	select {
	case err := <-res:
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		return ErrorAt(h.g.Path, PublicErr(ctx, err))
	case <-ctx.Done():
		return EndOf(ctx)
	}
}

func (h *Hold) downgradeOnce(ctx context.Context, l *Lease) error {
	if !h.beginChange() { // until the change ends, no lease is added
		return h.overErr()
	}
	h.mu.Lock()
	writes := h.writes(l)
	h.mu.Unlock()
	var err error
	switch {
	case writes:
		err = fmt.Errorf("%w: a nested lease needs the write lock", ErrUnsupported)
	case h.modeNow() == fence.Exclusive: // otherwise another call has already downgraded the hold
		err = h.becomeReader(ctx)
	}
	if err == nil {
		h.mu.Lock()
		for _, l := range h.leases {
			l.mode = fence.Shared
		}
		h.mu.Unlock()
	}
	h.endChange()
	if errors.Is(err, zk.ErrSessionExpired) {
		h.lose(Expired) // the hold may not have been told yet that its session is over
	}
	return cmp.Or(h.lostInChange(), err)
}

// lostInChange returns the loss of a hold whose nodes were replaced. It removes the new nodes, unless they
// stay until a grace is over.
func (h *Hold) lostInChange() error {
	h.mu.Lock()
	lost, graceful := h.lost, h.graceful
	h.mu.Unlock()
	if lost == nil {
		return nil
	}
	if !graceful {
		h.abandon()
	}
	return lost.err
}

// becomeReader replaces the hold's nodes by a read node, in one step.
func (h *Hold) becomeReader(ctx context.Context) error {
	if h.g.AsReader == nil {
		return fmt.Errorf("%w: only a read-write lock can be downgraded", ErrUnsupported)
	}
	h.mu.Lock()
	old, unmark := h.nodes, h.unmark
	h.mu.Unlock()
	node := h.g.AsReader(h.g.Epoch, old[0].Path)
	for {
		node.Also = append(deletes(old), unmark...)
		_, err := h.g.Epoch.CreateUntilKnown(ctx, node)
		refused, _ := errors.AsType[*zk.MultiError](err)
		switch {
		case err == nil:
			h.replace(fence.Shared, 0, nil, node.Path)
		case errors.Is(err, zk.ErrNoNode) && refused != nil && refused.Index > 1 && len(old) > 1:
			old = old[:1] // another client removed the writer's queue node, so leave it out
			continue
		case errors.Is(err, zk.ErrNoNode):
			h.lose(Removed)
		case errors.Is(err, zk.ErrBadVersion) && unmark != nil:
			unmark = nil // another program has replaced the mark of the lock delay, so leave it out
			continue
		}
		return err
	}
}

// overErr returns why the hold is over.
func (h *Hold) overErr() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return h.lost.err
	}
	return ErrNotHeld
}

// Upgrade turns a read lock into a write lock, ahead of all waiters. With `try` set, Upgrade fails if other
// readers hold the lock.
func (l *Lease) Upgrade(ctx context.Context, try bool) error {
	if err := l.Err(); err != nil {
		return err
	}
	h := l.h
	h.mu.Lock()
	wrong := h.mode != fence.Shared || len(h.leases) > 1 || h.g.Parts != nil
	h.mu.Unlock()
	why := ""
	switch {
	case wrong:
		why = "only a read lock that is not nested can be upgraded"
	case h.g.Upgrade == nil:
		why = "an upgrade needs a lock that was made with WithPolicy"
	}
	if why != "" {
		return ErrorAt(h.g.Path, fmt.Errorf("%w: %s", ErrUnsupported, why))
	}
	ctx, end := h.s.Keeper.During(ctx)
	defer end()
	var err error
	done := make(chan struct{})
	h.s.Keeper.Detached(func(context.Context) {
		defer close(done)
		if err = h.g.Upgrade(ctx, h, try); err == nil {
			h.mu.Lock()
			l.mode = fence.Exclusive
			h.mu.Unlock()
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
		return l.checkErr(ctx, EndOf(ctx))
	}
	if err == nil || errors.Is(err, ErrUpgradeConflict) {
		return ErrorAt(h.g.Path, err)
	}
	return l.checkErr(ctx, err)
}

// Life returns a context that ends with the hold.
func (h *Hold) Life() context.Context { return h.life }

// Epoch returns the session that the hold belongs to.
func (h *Hold) Epoch() *session.Epoch { return h.g.Epoch }

// Mode returns how the lock is held.
func (h *Hold) Mode() fence.Mode { return h.modeNow() }

// Nodes returns the nodes that stand for the hold.
func (h *Hold) Nodes() []Node { return h.nodesNow() }

// NodeIsGone says that a node of the hold is gone. It ends the hold, unless a change has replaced that node,
// and returns why the hold is over.
func (h *Hold) NodeIsGone(ctx context.Context, n Node) error {
	h.nodeGone(ctx, n)
	return h.overErr()
}

// Over returns why the hold is over. It returns nil while the hold lasts.
func (h *Hold) Over() error {
	if h.life.Err() == nil {
		return nil
	}
	return h.overErr()
}

// Writer describes the write hold into which an upgrade turns a read hold.
type Writer struct {
	Node   string
	Token  fence.Token
	Unmark []zk.Op
}

// BecomeWriter replaces the node of a read hold by the node that f makes in its place, and reports whether it
// did. If f returns nil, the hold does not change.
func (h *Hold) BecomeWriter(f func() (*Writer, error)) (bool, error) {
	if !h.beginChange() {
		return false, h.overErr()
	}
	defer h.endChange()
	w, err := f()
	if w == nil || err != nil {
		return false, err
	}
	h.replace(fence.Exclusive, w.Token, w.Unmark, w.Node)
	return true, h.lostInChange()
}

// beginChange announces that the nodes of the hold will be replaced. Call endChange after h.replace or a
// failure. Until then the hold's nodes are unknown, so releases and monitors wait. Changes come one after
// another. beginChange returns false if the hold is over.
func (h *Hold) beginChange() bool {
	for {
		h.mu.Lock()
		former, over := h.changing, h.over
		if !over && former == nil {
			h.changing = make(chan struct{})
		}
		h.mu.Unlock()
		if over || former == nil {
			return !over
		}
		<-former
	}
}

func (h *Hold) endChange() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.changing)
	h.changing = nil
}

func (h *Hold) awaitChange(ctx context.Context) {
	h.mu.Lock()
	ch := h.changing
	h.mu.Unlock()
	if ch == nil {
		return
	}
	select {
	case <-ch:
	case <-ctx.Done():
	}
}
