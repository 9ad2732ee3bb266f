package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zlockd/zlockd/client/internal/session"
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
		h.c.keeper.Detached(func(context.Context) {
			for {
				select {
				case r := <-l.Asked():
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
			h.c.keeper.Detached(func(context.Context) { h.monitor(ctx, n, n.w) })
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
				if session.Pause(ctx, session.Heartbeat(h.e.Timeout())) != nil {
					return // the hold is over
				}
				w = nil
				continue
			}
			w, hidden = s.Watch, s.Hidden
		}
		select {
		case <-firedOf(w):
		case <-time.After(h.e.LookAgain(hidden)):
			w = nil
		case <-ctx.Done():
			return
		}
	}
}

// lookAt reads and watches a node of the hold. A node that the session may not see is not lost.
func (h *hold) lookAt(ctx context.Context, n heldNode) (s session.Seen, gone bool, err error) {
	s, err = h.e.See(ctx, n.path, false)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return s, true, nil
	case errors.Is(err, zk.ErrNoAuth): // nor may the directory be listed
		return s, false, nil
	case err != nil:
		return s, false, err
	case !s.Listed && s.Stat.EphemeralOwner != h.e.ID():
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
	if ctx.Err() != nil || h.e.Ended() || !h.has(n) {
		return // released or replaced by this client, or gone with the session
	}
	h.lose(Removed, n)
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

// release gives the lock back. If ctx ends, or early is set, the release goes on in the background. The
// hold was valid when its release began, so the work did not overlap with another holder's.
func (h *hold) release(ctx context.Context, early bool) error {
	h.e.Remove(h)
	var answered <-chan struct{}
	answer := func(bg context.Context) error {
		h.awaitChange(bg) // which nodes there are must be known
		_, answer := h.giveBack(early)
		return answer(bg)
	}
	if !h.changes() {
		answered, answer = h.giveBack(early)
	}
	if answered != nil && !early {
		select {
		case <-answered:
			if answer(ctx) == nil {
				return nil
			}
		case <-ctx.Done():
		}
	}
	var err error
	settled := h.c.keeper.LeaveBehind(session.Dirs(h.nodesNow()), func(bg context.Context) {
		err = h.releaseErr(h.settle(answer(bg)))
		h.leave()
	})
	if early {
		return nil
	}
	select {
	case <-settled:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrReleasePending, endOf(ctx))
	}
}

// giveBack sends the request that removes all nodes, and takes back the mark of a lock delay, in one
// step. It passes the local turn on before the answer. The channel tells that there is an answer; it
// is nil for a set, whose locks are given back by answer.
func (h *hold) giveBack(early bool) (answered <-chan struct{}, answer func(context.Context) error) {
	defer h.endLife()
	if h.parts != nil {
		if early {
			err := releaseEach(h.parts)
			return nil, func(context.Context) error { return err }
		}
		return nil, func(ctx context.Context) error { return unlockEach(ctx, h.parts) }
	}
	h.mu.Lock()
	ops := append(deletes(h.nodes), h.unmark...)
	h.mu.Unlock()
	p := h.e.Conn().Pipe()
	answered, wait := session.Ask(p, ops...)
	if early {
		p.SendSoon()
	} else {
		p.Send()
	}
	h.leave()
	return answered, func(ctx context.Context) error {
		_, err := wait(ctx)
		return err
	}
}

// settle makes sure that the nodes go, whatever became of the request.
func (h *hold) settle(err error) error {
	nodes := h.nodesNow()
	refused, _ := errors.AsType[*zk.MultiError](err)
	switch {
	case err == nil, errors.Is(err, ErrSessionExpired), errors.Is(err, zk.ErrNoNode) && len(nodes) == 1:
		return err
	case isAmbiguous(err), errors.Is(err, zk.ErrThrottled), errors.Is(err, ErrClosed),
		h.c.keeper.Cleaning().Err() != nil,
		refused != nil && refused.Index >= len(nodes): // it is the mark that cannot be written
		<-h.discard(h.unmark)
		if h.e.WhyOver() == session.Expired {
			return ErrSessionExpired
		}
		return nil
	}
	h.discard(h.unmark) // a node that is gone, or may not be removed, must not keep the others
	return err
}

// releaseErr turns the error of a release into the one for the user.
func (h *hold) releaseErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return &LostError{Path: h.path, Node: h.nodes[0].path, Reason: Removed}
	case errors.Is(err, ErrSessionExpired) && h.e.Remaining(h.c.keeper.Now()) > 0:
		// Silence did not end the session, so it may have ended during the work.
		return &LostError{Path: h.path, Node: h.nodes[0].path, Reason: Expired}
	case errors.Is(err, ErrSessionExpired):
		return nil // the node went with the session, after the work was done
	}
	return publicErr(context.Background(), err)
}
