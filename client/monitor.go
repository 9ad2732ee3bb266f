package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// watchNodes starts a monitor for each node. The parts of a hold of several locks
// have monitors of their own.
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
			select {
			case <-l.Lost():
				h.lose(l.reason())
			case <-ctx.Done():
			}
		})
	}
	if h.parts != nil {
		return
	}
	for _, n := range h.nodes {
		h.c.detached(func(context.Context) { h.monitor(ctx, n, n.w) })
	}
}

// monitor follows one node of the hold until it is gone or the hold over.
func (h *hold) monitor(ctx context.Context, n heldNode, w *watch) {
	for {
		if w == nil || w.fired() {
			// A node removed by a change of ours is not a loss: see what the
			// change made of it.
			h.awaitChange(ctx)
			if ctx.Err() != nil {
				return
			}
			data, st, next, err := h.c.getW(ctx, h.e, n.path)
			if errors.Is(err, zk.ErrNoAuth) {
				st, next, err = h.c.existsW(ctx, h.e, n.path)
				if err == nil && st == nil {
					err = zk.ErrNoNode
				}
			}
			switch {
			case errors.Is(err, zk.ErrNoNode), err == nil && (st.EphemeralOwner != h.e.sid || n.czxid != 0 && st.Czxid != n.czxid):
				h.nodeGone(ctx, n)
				return
			case err != nil:
				return // the hold, the session or the client is over
			}
			if r, ok := revocationIn(data); ok {
				h.revoke(r)
			}
			w = next
		}
		select {
		case <-w.C():
		case <-ctx.Done():
			return
		}
	}
}

// beginChange announces that a node of the hold will be replaced; endChange that
// h.replace was called or the change failed. Changes come one after another, and
// none begins when the hold is over: then it returns false.
func (h *hold) beginChange() bool {
	for {
		h.mu.Lock()
		if h.over {
			h.mu.Unlock()
			return false
		}
		former := h.changing
		if former == nil {
			h.changing = make(chan struct{})
		}
		h.mu.Unlock()
		if former == nil {
			return true
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

// has reports whether a node still stands for the hold.
func (h *hold) has(n heldNode) bool {
	return slices.ContainsFunc(h.nodesNow(), func(m heldNode) bool { return m.path == n.path })
}

// nodeGone notes that a node of the hold does not exist any more.
func (h *hold) nodeGone(ctx context.Context, n heldNode) {
	// The look may have been under way when a change of ours began.
	h.awaitChange(ctx)
	if ctx.Err() != nil || h.e.ended() || !h.has(n) {
		return // released or replaced by us, or it went with the session
	}
	why := Removed
	if limit, ok := h.cfg.breakLimit(); ok && time.Since(h.since) >= limit {
		why = Broken
	}
	h.lose(why)
}
