package client

import (
	"context"
	"errors"
	"fmt"
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
					h.checkNow()
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
		l.revoked <- r
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

// release gives the lock back. If ctx ends, the release goes on in the background. The hold was
// valid when its release began, so the work did not overlap with another holder's.
func (h *hold) release(ctx context.Context) error {
	h.e.remove(h)
	rest := h.remove
	if r := h.quick(); r != nil {
		if h.cfg.earlyUnlock {
			h.settleBehind(r)
			return nil
		}
		select {
		case <-r.Done():
			if _, err := r.Wait(ctx); !isAmbiguous(err) {
				return h.releaseErr(h.settleRelease(err))
			}
		case <-ctx.Done():
		}
		rest = func(bg context.Context) error {
			_, err := r.Wait(bg)
			return err
		}
	}
	res := make(chan error, 1)
	h.c.detached(func(bg context.Context) {
		err := h.settleRelease(rest(bg))
		h.leave()
		res <- err
	})
	select {
	case err := <-res:
		return h.releaseErr(err)
	case <-ctx.Done():
	}
	select {
	case err := <-res:
		return h.releaseErr(err)
	default:
		h.c.leaveBehind(dirsOf(h.nodesNow()), func(context.Context) { <-res }) //nolint:errcheck // not needed
		return fmt.Errorf("%w: %w", ErrReleasePending, ctxErr(ctx))
	}
}

// quick begins the release of a simple hold: one node, on which nothing else depends. It sends the
// request and passes the local turn on before the answer. It returns nil if the hold is not simple.
func (h *hold) quick() *zk.Reply[struct{}] {
	h.mu.Lock()
	simple := len(h.nodes) == 1 && h.unmark == nil && h.changing == nil && h.parts == nil
	node := h.nodes[0].path
	h.mu.Unlock()
	if !simple {
		return nil
	}
	p := h.e.conn.Pipe()
	r := p.Delete(zk.Delete{Path: node, Version: -1})
	if h.cfg.earlyUnlock {
		p.SendSoon()
	} else {
		p.Send()
	}
	h.leave()
	h.endLife()
	return r
}

// remove releases a hold of any kind: in one step it removes all nodes and takes back the mark of a
// lock delay. It may repeat the step: if the nodes are gone then, the first time was enough.
// ErrNoNode says that another client removed a node.
func (h *hold) remove(ctx context.Context) error {
	h.awaitChange(ctx) // which nodes there are must be known
	h.endLife()
	if h.parts != nil {
		return unlockEach(ctx, h.parts)
	}
	h.mu.Lock()
	nodes, ops := h.nodes, append(deletes(h.nodes), h.unmark...)
	h.mu.Unlock()
	tries := 0
	err := again(ctx, func() error {
		tries++
		_, err := h.e.conn.Multi(ctx, ops...)
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoAuth):
		// A node that is gone, or a mark that may not be written, must not keep the other nodes.
		each := h.e.conn.Delete(ctx, nodes[0].path, -1)
		h.c.reap(h.e, pathsOf(nodes[1:])...)
		switch {
		case tries > 1 && errors.Is(each, zk.ErrNoNode):
			return nil
		case len(ops) > len(nodes) && !errors.Is(err, zk.ErrNoNode):
			return each // it is the mark that cannot be written
		}
	}
	return err
}

func deletes(nodes []heldNode) []zk.Op {
	ops := make([]zk.Op, len(nodes))
	for i, n := range nodes {
		ops[i] = zk.Delete{Path: n.path, Version: -1}
	}
	return ops
}

func pathsOf(nodes []heldNode) []string {
	paths := make([]string, len(nodes))
	for i, n := range nodes {
		paths[i] = n.path
	}
	return paths
}

// settleBehind follows up a release that was sent and has no waiting caller.
func (h *hold) settleBehind(r *zk.Reply[struct{}]) {
	h.c.leaveBehind(dirsOf(h.nodesNow()), func(bg context.Context) {
		_, err := r.Wait(bg)
		if err = h.settleRelease(err); err != nil {
			h.c.opt.log.Debug("early unlock", "path", h.path, "err", err)
		}
	})
}

// settleRelease makes sure that the nodes go, whatever became of the request.
func (h *hold) settleRelease(err error) error {
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, ErrSessionExpired):
		return err
	case isAmbiguous(err), errors.Is(err, ErrClosed), h.c.cleaning.Err() != nil:
		<-h.abandon()
		if h.e.whyOver() == Expired {
			return ErrSessionExpired
		}
		return nil
	}
	h.abandon()
	return err
}

// releaseErr turns the error of a release into the one for the user.
func (h *hold) releaseErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return &LostError{Path: h.path, Node: h.nodes[0].path, Reason: Removed}
	case errors.Is(err, ErrSessionExpired) && h.e.remaining(h.c.opt.clock.Now()) > 0:
		// Silence did not end the session, so it may have ended during the work.
		return &LostError{Path: h.path, Node: h.nodes[0].path, Reason: Expired}
	case errors.Is(err, ErrSessionExpired):
		return nil // the node went with the session, after the work was done
	}
	return publicErr(context.Background(), err)
}
