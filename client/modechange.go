package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// replace records the mode and the node of the hold after an upgrade or a downgrade. The token
// stays unless one is given.
func (h *hold) replace(mode fence.Mode, token fence.Token, unmark []zk.Op, path string) {
	h.mu.Lock()
	h.nodes, h.mode, h.unmark = []heldNode{{path: path}}, mode, unmark
	if token != 0 {
		h.token = token
	}
	h.mu.Unlock()
	h.watchNodes()
}

// Downgrade turns a write lock into a read lock; no writer gets in between. The token stays.
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
		return errorAt(h.path,
			fmt.Errorf("%w: only a write lock that is not nested can be downgraded", ErrUnsupported))
	}
	h.mu.Unlock()
	return h.downgrade(ctx, l)
}

// downgrade turns the write hold into a read hold, unless a lease other than l needs it to write. It
// runs detached, because it must follow up a write whose reply is lost. A hold lost during the
// change leaves no node behind; a release waits for the change.
func (h *hold) downgrade(ctx context.Context, l *Lease) error {
	res := make(chan error, 1)
	h.c.keeper.Detached(func(bg context.Context) { res <- h.downgradeOnce(bg, l) })
	select {
	case err := <-res:
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		return errorAt(h.path, publicErr(ctx, err))
	case <-ctx.Done():
		return endOf(ctx)
	}
}

func (h *hold) downgradeOnce(ctx context.Context, l *Lease) error {
	if !h.beginChange() { // from here on no lease is added
		return h.overErr()
	}
	h.mu.Lock()
	writes := h.writes(l)
	h.mu.Unlock()
	var err error
	switch {
	case writes:
		err = fmt.Errorf("%w: a nested lease needs the write lock", ErrUnsupported)
	case h.modeNow() == fence.Exclusive: // else another call was first
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
	if errors.Is(err, ErrSessionExpired) {
		h.lose(Expired) // the answer may be there before the news
	}
	return cmp.Or(h.lostInChange(), err)
}

// lostInChange returns the loss of a hold whose nodes were replaced. It removes them, unless they
// stay for a grace.
func (h *hold) lostInChange() error {
	h.mu.Lock()
	lost, graceful := h.lost, h.graceful
	h.mu.Unlock()
	if lost == nil {
		return nil
	}
	if !graceful {
		h.abandon()
	}
	return lost
}

// becomeReader replaces the hold's nodes by a read node, in one step.
func (h *hold) becomeReader(ctx context.Context) error {
	if !h.asked.rw {
		return fmt.Errorf("%w: only a read-write lock can be downgraded", ErrUnsupported)
	}
	path, data := h.readNode(newNodeID(h.e.ID()))
	node := session.Node{Create: zk.Create{Path: path, Data: data, ACL: h.cfg.acl, Mode: zk.Ephemeral}}
	h.mu.Lock()
	old, unmark := h.nodes, h.unmark
	h.mu.Unlock()
	for {
		node.Also = append(deletes(old), unmark...)
		_, err := h.e.CreateUntilKnown(ctx, node)
		refused, _ := errors.AsType[*zk.MultiError](err)
		switch {
		case err == nil:
			h.replace(fence.Shared, 0, nil, path)
		case errors.Is(err, zk.ErrNoNode) && refused != nil && refused.Index > 1 && len(old) > 1:
			old = old[:1] // another client removed the writer's place in the queue
			continue
		case errors.Is(err, zk.ErrNoNode):
			h.lose(Removed)
		case errors.Is(err, zk.ErrBadVersion) && unmark != nil:
			unmark = nil // another program has written over the mark
			continue
		}
		return err
	}
}

// readNode describes the node that stands for a read hold in the place of h.
func (h *hold) readNode(id recipe.ID) (path string, data []byte) {
	if h.cfg.policySet {
		// The door's mark, which has the old id, is stale with the fresh id.
		n := recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}
		return recipe.Join(h.path, n.Name(true)), h.asked.data()
	}
	// The read node takes the write node's number, so that no waiting writer is before it.
	old := h.nodesNow()[0]
	writer, _, _ := recipe.ParseName(recipe.Base(old.path))
	name := recipe.NodeName(h.cfg.layout, recipe.RoleRead, id, h.c.owner.Host) + fmt.Sprintf("%010d", writer.Seq)
	return recipe.Join(old.Dir(), name), h.asked.data()
}

// overErr returns why the hold is over.
func (h *hold) overErr() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	return ErrNotHeld
}

// Upgrade turns a read lock into a write lock, ahead of all waiters. If another reader is
// upgrading, Upgrade fails at once with ErrUpgradeConflict: one of the two must give up its read
// lock. It needs [WithPolicy]; other layouts answer ErrUnsupported. If ctx ends while the server is
// asked for the write lock, the lease may become one; [Lease.Mode] tells.
func (l *Lease) Upgrade(ctx context.Context) error { return l.upgrade(ctx, false) }

// TryUpgrade is Upgrade, but fails with ErrNotAcquired if other readers hold the lock.
func (l *Lease) TryUpgrade(ctx context.Context) error { return l.upgrade(ctx, true) }

func (l *Lease) upgrade(ctx context.Context, try bool) error {
	if err := l.Err(); err != nil {
		return err
	}
	h := l.h
	h.mu.Lock()
	wrong := h.mode != fence.Shared || len(h.leases) > 1 || h.parts != nil
	h.mu.Unlock()
	why := ""
	switch {
	case wrong:
		why = "only a read lock that is not nested can be upgraded"
	case !h.cfg.policySet:
		why = "an upgrade needs a lock WithPolicy"
	}
	if why != "" {
		return errorAt(h.path, fmt.Errorf("%w: %s", ErrUnsupported, why))
	}
	ctx, end := h.c.keeper.During(ctx)
	defer end()
	var err error
	done := make(chan struct{})
	h.c.keeper.Detached(func(context.Context) {
		defer close(done)
		if err = h.upgrade(ctx, try); err == nil {
			h.mu.Lock()
			l.mode = fence.Exclusive
			h.mu.Unlock()
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
		return l.checkErr(ctx, endOf(ctx))
	}
	if err == nil || errors.Is(err, ErrUpgradeConflict) {
		return errorAt(h.path, err)
	}
	return l.checkErr(ctx, err)
}

// upgrade turns the read hold of a lock with a policy into the write hold, ahead of all waiters.
func (h *hold) upgrade(ctx context.Context, try bool) error {
	own := h.nodesNow()[0]
	reader, _ := recipe.ParsePolicyNode(recipe.Base(own.path))
	w := newPolicyWaiter(h.asked, h.e, reader.ID)
	w.upgrades = true
	_, err := contend(ctx, &upgrader{policyWaiter: w, h: h, held: own, try: try})
	if err == nil || !w.closed || h.e.Ended() {
		return err
	}
	// Our own read hold would keep the door closed.
	done := w.dir.reopen(w.mark())
	if try {
		session.AwaitGone(ctx, done)
	}
	return err
}

// upgrader is a read hold that contends to become the write hold.
type upgrader struct {
	*policyWaiter
	h    *hold
	held heldNode
	try  bool
}

func (u *upgrader) next(ctx context.Context) (recipe.Step, error) {
	if u.h.life.Err() != nil {
		return recipe.Step{}, u.h.overErr()
	}
	if err := u.look(ctx); err != nil {
		return recipe.Step{}, err
	}
	return recipe.DecideUpgrade(u.dir.view(u.h.cfg.policy), u.id), nil
}

func (u *upgrader) act(ctx context.Context, step recipe.Step) (*hold, error) {
	switch step.Do {
	case recipe.Removed:
		if u.h.nodeGone(ctx, u.held); u.h.modeNow() == fence.Exclusive {
			return u.h, nil // another call was first
		}
		return nil, u.h.overErr()
	case recipe.Clash:
		return nil, ErrUpgradeConflict
	case recipe.CloseDoor:
		if u.try && u.dir.view(u.h.cfg.policy).OtherHold(u.id) != nil {
			return nil, ErrNotAcquired
		}
		u.closed = true
		// Do not stop if ctx ends: if the server set the mark after this client has taken it back, it would
		// stay as long as the read hold.
		return nil, u.dir.setDoor(u.h.life, u.mark())
	case recipe.Wait:
		if u.try {
			return nil, ErrNotAcquired
		}
		s, gone, err := u.watchNode(ctx, recipe.Join(u.a.dir, step.On.Name(true)))
		if err == nil && !gone {
			err = u.e.RestAwhile(ctx, s.Watch.Fired(), u.h.life.Done())
		}
		return nil, err
	default: // recipe.Grant
		done, err := u.becomeWriter(ctx, u.h)
		if done {
			return u.h, err
		}
		return nil, err
	}
}

// becomeWriter carries the upgrade out. It does not stop half way when ctx ends, because the client
// must know what the hold is.
func (w *policyWaiter) becomeWriter(ctx context.Context, h *hold) (bool, error) {
	if !w.e.Valid() {
		return false, w.e.AwaitValid(ctx)
	}
	if !h.beginChange() {
		return false, h.overErr()
	}
	defer h.endChange()
	n := w.holdNode(recipe.UpgradeGrant(w.id))
	made, err := h.e.CreateUntilKnown(w.c.keeper.Cleaning(), n)
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		w.dir.fresh = false
		return false, nil
	case err != nil:
		return false, err
	}
	h.replace(fence.Exclusive, fence.Token(made[0].Stat.Czxid), w.dir.unmark(h.cfg), n.Path)
	return true, h.lostInChange()
}

// beginChange announces that the nodes of the hold will be replaced; endChange ends the change,
// after h.replace or a failure. In between the nodes of the hold are unknown, so a release and a
// monitor wait. Changes come one after another. beginChange returns false if the hold is over.
func (h *hold) beginChange() bool {
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

func (h *hold) endChange() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.changing)
	h.changing = nil
}

// changes reports whether a change is under way.
func (h *hold) changes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changing != nil
}

func (h *hold) awaitChange(ctx context.Context) {
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
