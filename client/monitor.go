package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// watchNodes starts a monitor for each node: at once if the node is watched already, and otherwise
// when the hold has lasted a moment. The parts of a hold of several locks have monitors of their
// own.
func (h *hold) watchNodes() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	// A monitor of a node that was replaced ends when it finds that out.
	ctx := h.life
	for _, l := range h.parts {
		h.c.detached(func(context.Context) {
			for {
				select {
				case r := <-l.Revoked():
					h.wish(r)
					continue
				case <-l.Lost():
					cause := l.cause // it no longer changes
					h.lose(cause.Reason, cause.node())
				case <-ctx.Done():
				}
				return
			}
		})
	}
	if h.parts != nil {
		return
	}
	nodes := h.nodes
	begin := func() {
		for _, n := range nodes {
			h.c.detached(func(context.Context) { h.monitor(ctx, n, n.w) })
		}
	}
	if nodes[0].w != nil {
		begin()
		return
	}
	h.timers = append(h.timers, time.AfterFunc(ownWatch, func() {
		if ctx.Err() == nil {
			begin()
		}
	}))
}

// monitor follows one node of the hold until the node is gone or the hold is over. It does not
// trust a silent watch forever: if another client takes away the right to read the node, the server
// sends no event, neither for that nor for the node's end. So monitor looks at the node again now
// and then, and more often if the node may not be read.
func (h *hold) monitor(ctx context.Context, n heldNode, w *zk.Watch) {
	hidden := false
	for {
		if w == nil || isClosed(w.Fired()) {
			// A node that a change of this hold removed is not a loss: wait for the change.
			h.awaitChange(ctx)
			if ctx.Err() != nil {
				return
			}
			s, gone, err := h.lookAt(ctx, n)
			if gone {
				h.nodeGone(ctx, n)
				return
			}
			if err != nil {
				if pause(ctx, heartbeat(h.e.sessionTimeout())) != nil {
					return // the hold is over
				}
				w = nil
				continue
			}
			w, hidden = s.w, s.hidden
		}
		select {
		case <-firedOf(w):
		case <-time.After(h.e.lookAgain(hidden)):
			w = nil
		case <-ctx.Done():
			return
		}
	}
}

// lookAgain returns the time until another look at a node, whatever its watch says.
func (e *epoch) lookAgain(hidden bool) time.Duration {
	d := e.sessionTimeout()
	if hidden {
		d = heartbeat(d)
	}
	return d + rand.N(d/4+1)
}

// lookAt reads and watches a node of the hold. A node that the session may not see is not lost.
func (h *hold) lookAt(ctx context.Context, n heldNode) (s seen, gone bool, err error) {
	s, err = h.e.see(ctx, n.path, false)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return s, true, nil
	case errors.Is(err, zk.ErrNoAuth): // nor may the directory be listed
		return s, false, nil
	case err != nil:
		return s, false, err
	case !s.listed && s.Stat.EphemeralOwner != h.e.sid:
		return s, true, nil
	}
	if r, ok := recipe.RevocationIn(s.Data); ok {
		h.revoke(r)
	}
	return s, false, nil
}

// has reports whether a node still stands for the hold.
func (h *hold) has(n heldNode) bool {
	return slices.ContainsFunc(h.nodesNow(), func(m heldNode) bool { return m.path == n.path })
}

// nodeGone ends the hold because its node n is gone, unless the client itself removed n.
func (h *hold) nodeGone(ctx context.Context, n heldNode) {
	// The look may have been under way when a change of the mode began.
	h.awaitChange(ctx)
	if ctx.Err() != nil || h.e.ended() || !h.has(n) {
		return // released or replaced by this client, or gone with the session
	}
	why := Removed
	if limit, ok := h.cfg.breakLimit(); ok && h.held() >= limit {
		why = Broken
	}
	h.lose(why, n)
}

// wish delivers the first request to give the lock back, and reports whether it did.
func (h *hold) wish(r recipe.Revocation) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.revoked != nil {
		return false
	}
	h.revoked = &r
	for _, l := range h.leases {
		l.wish(r)
	}
	return true
}

// revoke is wish that also ends a revocable hold, after its grace.
func (h *hold) revoke(r recipe.Revocation) {
	if !h.wish(r) || !h.cfg.revocable {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.timers = append(h.timers, time.AfterFunc(h.cfg.revokeGrace, func() { h.lose(Revoked) }))
	}
}
