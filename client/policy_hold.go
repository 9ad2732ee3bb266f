package client

import (
	"context"
	"errors"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// policyModes is how a hold of a policy lock changes.
type policyModes struct{}

// readNode gets a fresh id: the door's mark is stale from then on.
func (policyModes) readNode(h *hold, id recipe.ID) (heldNode, []byte) {
	n := recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}
	node := heldNode{path: recipe.Join(h.path, n.Name(true)), id: id}
	return node, policyHoldData(&attempt{c: h.c, cfg: h.cfg, task: h.task})
}

// upgrade turns the read hold into the write hold ahead of all waiters.
func (policyModes) upgrade(ctx context.Context, h *hold, try bool) error {
	a := &attempt{c: h.c, cfg: h.cfg, task: h.task, path: h.path, dir: h.path}
	w := newPolicyWaiter(a, h.e, h.nodesNow()[0].id)
	w.upgrades = true
	err := w.upgrade(ctx, h, try)
	if err == nil || !w.closed || h.e.ended() {
		return err
	}
	// Our own read hold would keep the door closed.
	done := w.dir.reopen(w.mark())
	if try {
		awaitGone(ctx, done)
	}
	return err
}

func (w *policyWaiter) upgrade(ctx context.Context, h *hold, try bool) error {
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		step := recipe.DecideUpgrade(w.dir.view(h.cfg.policy), w.id)
		switch step.Do {
		case recipe.Removed:
			if h.awaitChange(ctx); h.modeNow() == fence.Exclusive {
				return nil // another call was first
			}
			h.awaitLoss(ctx)
			return ErrNotHeld
		case recipe.Clash:
			return ErrUpgradeConflict
		case recipe.CloseDoor:
			if try && w.dir.view(h.cfg.policy).OtherHold(w.id) != nil {
				return ErrNotAcquired
			}
			w.closed = true
			// Do not stop if ctx ends: a mark that the server sets after this client took it back would stay
			// as long as the read hold.
			if err := w.dir.setDoor(h.life, w.mark()); err != nil {
				return err
			}
		case recipe.Wait:
			if try {
				return ErrNotAcquired
			}
			if err := w.awaitHolder(ctx, h, step.On); err != nil {
				return err
			}
		case recipe.Grant:
			done, err := w.becomeWriter(ctx, h)
			if done || err != nil {
				return err
			}
		}
	}
}

// awaitHolder waits until another holder may be gone.
func (w *policyWaiter) awaitHolder(ctx context.Context, h *hold, on recipe.PolicyNode) error {
	s, gone, err := w.watchNode(ctx, recipe.Join(w.a.dir, on.Name(true)))
	if gone || err != nil {
		return err
	}
	err = w.e.restAwhile(ctx, s.w.Fired(), h.life.Done())
	switch {
	case errors.Is(err, ErrSessionExpired):
		h.awaitLoss(ctx)
		return ErrNotHeld
	case h.life.Err() != nil:
		return ErrNotHeld
	}
	return err
}

// becomeWriter carries the upgrade out. It does not stop half way when ctx ends, because the client
// must know what the hold is.
func (w *policyWaiter) becomeWriter(ctx context.Context, h *hold) (bool, error) {
	if !w.e.valid() {
		return false, w.e.awaitValid(ctx)
	}
	if !h.beginChange() {
		return false, h.overErr()
	}
	defer h.endChange()
	n := w.holdNode(recipe.UpgradeGrant(w.id))
	n.late = func(made created) {
		token, held := fence.Token(made.stat.Czxid), heldNode{path: n.Path, id: w.id}
		h.replace(fence.Exclusive, token, w.dir.unmark(h.cfg), held)
		_ = h.lostInChange()
	}
	made, _, err := w.c.create(h.life, h.e, n)
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		w.dir.fresh = false
		return false, nil
	case err != nil:
		return false, err
	}
	n.late(made[0])
	return true, h.lossNow()
}

// awaitLoss waits until the monitor notices a loss that is already known.
func (h *hold) awaitLoss(ctx context.Context) {
	select {
	case <-h.life.Done():
	case <-ctx.Done():
	}
}
