package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// release gives the lock back. If ctx ends, the release goes on in the background. The hold was
// valid when its release began, so the work did not overlap with another holder's.
func (h *hold) release(ctx context.Context) error {
	h.e.remove(h)
	h.endUnlocked(context.Canceled)
	r := h.quick()
	if r == nil {
		return h.settle(ctx, h.remove)
	}
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
	return h.settle(ctx, func(bg context.Context) error {
		_, err := r.Wait(bg)
		return err
	})
}

// settle runs the rest of a release, in the background if ctx has ended.
func (h *hold) settle(ctx context.Context, rest func(ctx context.Context) error) error {
	res := make(chan error, 1)
	h.c.detached(func(bg context.Context) {
		err := h.settleRelease(rest(bg))
		h.turn.leave()
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
	h.turn.leave()
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
	for n := 1; ; n++ {
		_, err := h.e.conn.Multi(ctx, ops...)
		switch {
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoAuth):
			// A node that is gone, or a mark that may not be written, must not keep the other nodes.
			each := h.e.conn.Delete(ctx, nodes[0].path, -1)
			h.c.reap(h.e, pathsOf(nodes[1:])...)
			switch {
			case n > 1 && errors.Is(each, zk.ErrNoNode):
				return nil
			case len(ops) > len(nodes) && !errors.Is(err, zk.ErrNoNode):
				return each // it is the mark that cannot be written
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

// letGo gives back a hold that no caller knows of, without waiting. It sends the request at once:
// the client's next request, a try above all, must not find the hold.
func (h *hold) letGo() {
	if r := h.quick(); r != nil {
		h.settleBehind(r)
		return
	}
	h.endLife()
	h.discard()
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
		return h.e.expiry()
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
