package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/zk"
)

// Unlock gives the lock back: see Unlock in package client.
func (l *Lease) Unlock(ctx context.Context) error { return ErrorAt(l.h.g.Path, l.unlock(ctx, false)) }

// Release is like Unlock, but does not wait for the server.
func (l *Lease) Release() error { return ErrorAt(l.h.g.Path, l.unlock(context.Background(), true)) }

func (l *Lease) unlock(ctx context.Context, early bool) error {
	h := l.h
	h.checkNow() // a lease past its deadline or limit counts as lost, noticed or not
	h.mu.Lock()
	if l.unlocked {
		h.mu.Unlock()
		return ErrNotHeld
	}
	l.unlocked = true
	h.s.named.remove(l)
	h.leases = slices.DeleteFunc(h.leases, func(x *Lease) bool { return x == l })
	if l.cause != nil {
		last := len(h.leases) == 0
		h.mu.Unlock()
		if last { // the last Unlock removes the nodes that stayed after the loss
			h.endGrace()
		}
		return l.cause.err
	}
	if len(h.leases) > 0 {
		// The contexts of the other leases may be children of this lease's context, so this context ends only
		// with the hold.
		h.unlocked = append(h.unlocked, l)
		down := h.g.AsReader != nil && h.mode == fence.Exclusive && l.mode == fence.Exclusive && !h.writes(nil)
		h.mu.Unlock()
		switch {
		case !down:
			return nil
		case early:
			h.s.Keeper.Detached(func(ctx context.Context) { _ = h.downgradeOnce(ctx, nil) })
			return nil
		}
		err := h.downgrade(ctx, nil)
		switch {
		case errors.Is(err, ErrUnsupported), errors.Is(err, ErrNotHeld):
			// No downgrade is needed: the whole hold was unlocked, or a nested lease needs the write lock.
			return nil
		case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return fmt.Errorf("%w: %w", ErrReleasePending, err)
		}
		return err
	}
	h.over = true
	h.stopTimers()
	h.tell(Event{Kind: EventReleased, Held: h.held()})
	l.cancel(context.Canceled)
	h.endUnlocked(context.Canceled)
	h.mu.Unlock()
	return h.release(ctx, early)
}

// GiveBack gives back a grant that no program has learned of, without waiting for the server.
func (s *Shared) GiveBack(g *Grant) { _ = s.newHold(g).release(context.Background(), true) }

// abandon() gives the nodes to the reaper and the local turn to the next contender.
func (h *Hold) abandon() {
	h.discard(nil)
	h.g.Leave()
}

// discard() gives the nodes to the reaper. If `unmark` is given, the reaper also takes back the mark of a
// lock delay. The channel closes when the nodes are gone.
func (h *Hold) discard(unmark []zk.Op) <-chan struct{} {
	if h.g.Parts == nil {
		return h.g.Epoch.ReapMarked(pathsOf(h.nodesNow()), unmark)
	}
	gone := make(chan struct{})
	h.s.Keeper.Detached(func(ctx context.Context) {
		defer close(gone)
		_ = unlockEach(ctx, h.g.Parts)
	})
	return gone
}

// release() gives the lock back. If ctx ends, or `early` is set, the release continues in the background. A
// loss of the hold after this call began does no harm, because the work under the lock is over.
func (h *Hold) release(ctx context.Context, early bool) error {
	h.g.Epoch.Remove(h)
	var answered <-chan struct{}
	answer := func(bg context.Context) error {
		h.awaitChange(bg) // until a change of the mode ends, the nodes to remove are unknown
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
	settled := h.s.Keeper.LeaveBehind(session.Dirs(h.nodesNow()), func(bg context.Context) {
		err = h.releaseErr(h.settle(answer(bg)))
		h.g.Leave()
	})
	if early {
		return nil
	}
	select {
	case <-settled:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrReleasePending, EndOf(ctx))
	}
}

// giveBack sends one request that removes all nodes and takes back the mark of a lock delay. It gives the
// local turn to the next contender before the answer arrives. The channel closes when the answer has arrived.
// For a set the channel is nil, because answer() gives the locks of the set back.
func (h *Hold) giveBack(early bool) (answered <-chan struct{}, answer func(context.Context) error) {
	defer h.endLife()
	if h.g.Parts != nil {
		if early {
			for _, l := range h.g.Parts {
				_ = l.Release() // an error says that this part was lost, so there is nothing to release
			}
			return nil, func(context.Context) error { return nil }
		}
		return nil, func(ctx context.Context) error { return unlockEach(ctx, h.g.Parts) }
	}
	h.mu.Lock()
	ops := append(deletes(h.nodes), h.unmark...)
	h.mu.Unlock()
	p := h.g.Epoch.Conn().Pipe()
	answered, wait := session.Ask(p, ops...)
	if early {
		p.SendSoon()
	} else {
		p.Send()
	}
	h.g.Leave()
	return answered, func(ctx context.Context) error {
		_, err := wait(ctx)
		return err
	}
}

// settle() makes sure that the nodes are removed, even if the request failed.
func (h *Hold) settle(err error) error {
	nodes := h.nodesNow()
	refused, _ := errors.AsType[*zk.MultiError](err)
	switch {
	case err == nil, errors.Is(err, zk.ErrSessionExpired), errors.Is(err, zk.ErrNoNode) && len(nodes) == 1:
		return err
	case errors.Is(err, zk.ErrUncertain), errors.Is(err, zk.ErrThrottled), errors.Is(err, zk.ErrClosed),
		h.s.Keeper.Cleaning().Err() != nil,
		refused != nil && refused.Index >= len(nodes): // only the mark of the lock delay was refused
		<-h.discard(h.unmark)
		if h.g.Epoch.WhyOver() == session.Expired {
			return zk.ErrSessionExpired
		}
		return nil
	}
	h.discard(h.unmark) // remove the other nodes even if one node is gone or may not be removed
	return err
}

// releaseErr turns the error of a release into the error for the user.
func (h *Hold) releaseErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return h.s.Cause(Loss{Path: h.g.Path, Node: h.nodes[0].Path, Reason: Removed})
	case errors.Is(err, zk.ErrSessionExpired) && h.g.Epoch.Remaining(h.s.Keeper.Now()) > 0:
		// The session ended although its deadline had not passed, so perhaps it ended while the holder still
		// worked.
		return h.s.Cause(Loss{Path: h.g.Path, Node: h.nodes[0].Path, Reason: Expired})
	case errors.Is(err, zk.ErrSessionExpired):
		return nil // the session and its node timed out after the holder had stopped its work
	}
	return PublicErr(context.Background(), err)
}

// unlockEach unlocks all parts at the same time, and returns the first error.
func unlockEach(ctx context.Context, parts []*Lease) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, l := range parts {
		wg.Go(func() { errs[i] = l.Unlock(ctx) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}
