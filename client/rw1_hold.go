package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// rw1Ops is how a hold of an rw1 lock ends or changes.
type rw1Ops struct {
	mu  sync.Mutex
	dir rw1Dir // as seen at the grant
}

// seen returns the directory as it was at the latest grant.
func (o *rw1Ops) seen() *rw1Dir {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.dir
	return &d
}

func (o *rw1Ops) see(d rw1Dir) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dir = d
}

// release removes the hold node, and a writer's queue node with it.
func (o *rw1Ops) release(ctx context.Context, h *hold) error {
	nodes, dir := h.nodesNow(), o.seen()
	if len(nodes) == 1 && !h.marked {
		return h.c.delete(ctx, h.e, nodes[0].path, -1)
	}
	for n := 1; ; n++ {
		ops := deletes(nodes)
		if h.marked {
			// Nobody can have changed the record while its owner held.
			ops = append(ops, dir.setOps(dir.rec.withGate(rw1Gate{}))...)
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
func (o *rw1Ops) removeEach(ctx context.Context, h *hold, nodes []heldNode) error {
	err := h.c.delete(ctx, h.e, nodes[0].path, -1)
	for _, n := range nodes[1:] {
		h.c.reap(h.e, n.path)
	}
	return err
}

func deletes(nodes []heldNode) []any {
	var ops []any
	for _, n := range nodes {
		ops = append(ops, &zk.DeleteRequest{Path: n.path, Version: -1})
	}
	return ops
}

// holdDataOf is the content of a hold node made by a change of mode.
func holdDataOf(h *hold, id nodeID) []byte {
	a := &attempt{c: h.c, cfg: h.cfg}
	return rw1HoldData(a, id)
}

// downgrade puts a read hold of a fresh id in the place of the write hold. The
// gate's mark is stale from then on.
func (o *rw1Ops) downgrade(ctx context.Context, h *hold) error {
	nodes, dir := h.nodesNow(), o.seen()
	fresh := rw1Node{id: newNodeID(h.e.sid), kind: rw1HoldRead}
	path := join(dir.path, fresh.name(true))
	for n := 1; ; n++ {
		ops := append([]any{&zk.CreateRequest{Path: path, Data: holdDataOf(h, fresh.id), Acl: h.cfg.acl, Flags: zk.FlagEphemeral}}, deletes(nodes)...)
		if h.marked {
			ops = append(ops, dir.setOps(dir.rec.withGate(rw1Gate{}))...)
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
func (o *rw1Ops) upgrade(ctx context.Context, h *hold, try bool) error {
	own, dir := h.nodesNow()[0], o.seen().path
	w := &rw1Waiter{waiter: waiter{c: h.c, e: h.e, a: &attempt{c: h.c, cfg: h.cfg, path: h.path, dir: dir}}, id: own.id,
		dir: rw1Dir{c: h.c, e: h.e, path: dir, acl: h.cfg.acl}}
	err := w.upgrade(ctx, h, try)
	if err == nil || !w.closed || h.e.ended() {
		return err
	}
	// Our own read hold would keep the gate closed.
	done := w.dir.reopen(rw1Gate{own.id, rw1GateUpgrade})
	if try {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	return err
}

func (w *rw1Waiter) upgrade(ctx context.Context, h *hold, try bool) error {
	for {
		if err := w.lookUpgrading(ctx); err != nil {
			return err
		}
		step := rw1Upgrade(w.dir.view(h.cfg.policy), w.id)
		switch step.do {
		case rw1Removed:
			if h.awaitChange(ctx); h.modeNow() == fence.Exclusive {
				return nil // another call was first
			}
			h.awaitLoss(ctx)
			return ErrNotHeld
		case rw1Clash:
			return ErrUpgradeConflict
		case rw1Close:
			if try && w.dir.view(h.cfg.policy).otherHold(w.id) != nil {
				return ErrNotAcquired
			}
			w.closed = true
			// To its end even if ctx ends: a mark that came to be after our
			// taking it back would stay as long as our read hold.
			if err := w.dir.setGate(h.life, rw1Gate{w.id, rw1GateUpgrade}); err != nil {
				return err
			}
		case rw1Wait:
			if try {
				return ErrNotAcquired
			}
			if err := w.awaitHolder(ctx, h, step.on); err != nil {
				return err
			}
		case rw1Grant:
			done, err := w.becomeWriter(ctx, h)
			if done || err != nil {
				return err
			}
		}
	}
}

// lookUpgrading is look for an upgrade.
func (w *rw1Waiter) lookUpgrading(ctx context.Context) error {
	if !w.dir.fresh || w.dir.rec.gate() != (rw1Gate{w.id, rw1GateUpgrade}) {
		if err := w.dir.read(ctx, w.a.cfg); err != nil {
			return err
		}
	}
	return w.dir.list(ctx)
}

// awaitHolder waits until another holder may be gone.
func (w *rw1Waiter) awaitHolder(ctx context.Context, h *hold, on rw1Node) error {
	_, pw, gone, err := w.watchNode(ctx, join(w.a.dir, on.name(true)))
	if gone || err != nil {
		return err
	}
	select {
	case <-pw.C():
		w.dir.forget(pw.event() != zk.EventNodeDeleted && pw.event() != zk.EventNodeDataChanged)
		return nil
	case <-h.ended:
		return ErrNotHeld
	case <-ctx.Done():
		return ctxErr(ctx)
	case <-w.c.drain:
		return ErrClosed
	}
}

// becomeWriter carries the upgrade out. It does not stop half way when ctx ends:
// what the hold is must be known.
func (w *rw1Waiter) becomeWriter(ctx context.Context, h *hold) (bool, error) {
	if !w.e.valid() {
		return false, w.e.awaitValid(ctx)
	}
	if !h.beginChange() {
		return false, h.overErr()
	}
	defer h.endChange()
	node := rw1Node{id: w.id, kind: rw1HoldWrite}
	st, err := w.dir.grant(h.life, rw1Granted{ops: rw1UpgradeGrant(w.id), node: node, data: holdDataOf(h, w.id)})
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		w.dir.fresh = false
		return false, nil
	case err != nil:
		return false, err
	}
	path := join(w.a.dir, node.name(true))
	h.replace(fence.Exclusive, fence.Token(st.Czxid), nil, heldNode{path: path, id: w.id})
	h.ops.(*rw1Ops).see(w.dir)
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
