package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// policyOps is how a hold of a policy lock ends or changes.
type policyOps struct {
	mu  sync.Mutex
	dir policyDir // as seen at the grant
}

// seen returns the directory as it was at the latest grant.
func (o *policyOps) seen() *policyDir {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.dir
	return &d
}

func (o *policyOps) see(d policyDir) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dir = d
}

// release removes the hold node, and a writer's queue node with it.
func (o *policyOps) release(ctx context.Context, h *hold) error {
	nodes, dir := h.nodesNow(), o.seen()
	if len(nodes) == 1 && !h.marked {
		return h.c.delete(ctx, h.e, nodes[0].path, -1)
	}
	for n := 1; ; n++ {
		ops := deletes(nodes)
		if h.marked {
			// Nobody can have changed the record while its owner held.
			ops = append(ops, dir.setOps(dir.rec.withGate(policyGate{}))...)
		}
		_, err := h.c.multi(ctx, h.e, ops...)
		switch {
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoAuth):
			err := o.removeEach(ctx, h, nodes)
			if n > 1 && errors.Is(err, zk.ErrNoNode) {
				return nil // the first time was enough
			}
			return err
		case !isAmbiguous(err):
			return err
		}
		if err := pause(ctx, backoff(n, 10*time.Millisecond, time.Second)); err != nil {
			return err
		}
	}
}

// removeEach deletes the nodes one by one; its error is the hold node's.
func (o *policyOps) removeEach(ctx context.Context, h *hold, nodes []heldNode) error {
	err := h.c.delete(ctx, h.e, nodes[0].path, -1)
	for _, n := range nodes[1:] {
		h.c.reap(h.e, n.path)
	}
	return err
}

func deletes(nodes []heldNode) []zk.Op {
	var ops []zk.Op
	for _, n := range nodes {
		ops = append(ops, zk.Delete{Path: n.path, Version: -1})
	}
	return ops
}

// holdDataOf is the content of a hold node made by a change of mode.
func holdDataOf(h *hold, id nodeID) []byte {
	a := &attempt{c: h.c, cfg: h.cfg}
	return policyHoldData(a, id)
}

// downgrade puts a read hold of a fresh id in the place of the write hold. The
// gate's mark is stale from then on.
func (o *policyOps) downgrade(ctx context.Context, h *hold) error {
	nodes, dir := h.nodesNow(), o.seen()
	fresh := policyNode{id: newNodeID(h.e.sid), kind: policyHoldRead}
	path := join(dir.path, fresh.name(true))
	for n := 1; ; n++ {
		ops := append([]zk.Op{zk.Create{Path: path, Data: holdDataOf(h, fresh.id), ACL: h.cfg.acl, Mode: zk.Ephemeral}}, deletes(nodes)...)
		if h.marked {
			ops = append(ops, dir.setOps(dir.rec.withGate(policyGate{}))...)
		}
		_, err := h.c.multi(ctx, h.e, ops...)
		if isAmbiguous(err) {
			var names []string
			names, err = h.c.relist(ctx, h.e, dir.path)
			if err == nil && len(bearing(names, fresh.id)) == 0 {
				if err := pause(ctx, backoff(n, 10*time.Millisecond, time.Second)); err != nil {
					return err
				}
				continue // it did not happen
			}
		}
		if errors.Is(err, zk.ErrNoNode) && failedAt(err) == 2 {
			nodes = nodes[:1] // somebody removed the queue node
			continue
		}
		if errors.Is(err, zk.ErrNoNode) {
			h.lose(Removed)
		}
		if err == nil {
			h.marked = false
			h.replace(fence.Shared, 0, nil, heldNode{path: path, id: fresh.id})
		}
		return err
	}
}

// upgrade turns the read hold into the write hold ahead of everyone who waits.
func (o *policyOps) upgrade(ctx context.Context, h *hold, try bool) error {
	own, dir := h.nodesNow()[0], o.seen().path
	w := &policyWaiter{waiter: waiter{c: h.c, e: h.e, a: &attempt{c: h.c, cfg: h.cfg, path: h.path, dir: dir}}, id: own.id,
		dir: policyDir{c: h.c, e: h.e, path: dir, acl: h.cfg.acl}}
	err := w.upgrade(ctx, h, try)
	if err == nil || !w.closed || h.e.ended() {
		return err
	}
	// Our own read hold would keep the gate closed.
	done := w.dir.reopen(policyGate{own.id, policyGateUpgrade})
	if try {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	return err
}

func (w *policyWaiter) upgrade(ctx context.Context, h *hold, try bool) error {
	for {
		if err := w.lookUpgrading(ctx); err != nil {
			return err
		}
		step := policyUpgrade(w.dir.view(h.cfg.policy), w.id)
		switch step.do {
		case policyRemoved:
			if h.awaitChange(ctx); h.modeNow() == fence.Exclusive {
				return nil // another call was first
			}
			h.awaitLoss(ctx)
			return ErrNotHeld
		case policyClash:
			return ErrUpgradeConflict
		case policyClose:
			if try && w.dir.view(h.cfg.policy).otherHold(w.id) != nil {
				return ErrNotAcquired
			}
			w.closed = true
			// To its end even if ctx ends: a mark that came to be after our
			// taking it back would stay as long as our read hold.
			if err := w.dir.setGate(h.life, policyGate{w.id, policyGateUpgrade}); err != nil {
				return err
			}
		case policyWait:
			if try {
				return ErrNotAcquired
			}
			if err := w.awaitHolder(ctx, h, step.on); err != nil {
				return err
			}
		case policyGrant:
			done, err := w.becomeWriter(ctx, h)
			if done || err != nil {
				return err
			}
		}
	}
}

// lookUpgrading is look for an upgrade.
func (w *policyWaiter) lookUpgrading(ctx context.Context) error {
	if !w.dir.fresh || w.dir.rec.gate() != (policyGate{w.id, policyGateUpgrade}) {
		if err := w.dir.read(ctx, w.a.cfg); err != nil {
			return err
		}
	}
	return w.dir.list(ctx)
}

// awaitHolder waits until another holder may be gone.
func (w *policyWaiter) awaitHolder(ctx context.Context, h *hold, on policyNode) error {
	s, gone, err := w.watchNode(ctx, join(w.a.dir, on.name(true)))
	if gone || err != nil {
		return err
	}
	err = w.e.restAwhile(ctx, s.w.Fired(), h.ended)
	switch {
	case errors.Is(err, ErrSessionExpired):
		h.awaitLoss(ctx)
		return ErrNotHeld
	case isClosed(h.ended):
		return ErrNotHeld
	}
	t := s.w.Event().Type
	w.dir.forget(t != zk.EventDeleted && t != zk.EventDataChanged)
	return err
}

// becomeWriter carries the upgrade out. It does not stop half way when ctx ends:
// what the hold is must be known.
func (w *policyWaiter) becomeWriter(ctx context.Context, h *hold) (bool, error) {
	if !w.e.valid() {
		return false, w.e.awaitValid(ctx)
	}
	if !h.beginChange() {
		return false, h.overErr()
	}
	defer h.endChange()
	node := policyNode{id: w.id, kind: policyHoldWrite}
	made, err := w.dir.grant(h.life, policyGranted{ops: policyUpgradeGrant(w.id), node: node, data: holdDataOf(h, w.id)})
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		w.dir.fresh = false
		return false, nil
	case err != nil:
		return false, err
	}
	path := join(w.a.dir, node.name(true))
	h.replace(fence.Exclusive, fence.Token(made.stat.Czxid), nil, heldNode{path: path, id: w.id})
	h.ops.(*policyOps).see(w.dir)
	h.marked = h.cfg.lockDelay > 0
	lost := h.lossNow()
	if lost != nil {
		h.c.reap(h.e, path)
	}
	return true, lost
}

// awaitLoss waits for the monitor to notice what is known already.
func (h *hold) awaitLoss(ctx context.Context) {
	select {
	case <-h.ended:
	case <-ctx.Done():
	}
}
