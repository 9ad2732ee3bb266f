package hold

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// OwnWatch is how long a wait or a hold must last before the client watches its own node. Most waits and
// holds end earlier, and the watch costs a request and an event.
const OwnWatch = 100 * time.Millisecond

// watchNodes starts a monitor for each node: at once if the nodes are watched already, and otherwise after
// the time OwnWatch. In a hold of several locks, each part monitors its own nodes.
func (h *Hold) watchNodes() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	// A monitor runs until the hold ends, or until the monitor sees that its node was replaced.
	ctx := h.life
	for _, l := range h.g.Parts {
		h.s.Keeper.Detached(func(context.Context) {
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
	if h.g.Parts != nil {
		return
	}
	nodes := h.nodes
	begin := func() {
		for _, n := range nodes {
			h.s.Keeper.Detached(func(context.Context) { h.monitor(ctx, n, n.Watch) })
		}
	}
	if nodes[0].Watch != nil {
		begin()
		return
	}
	h.timers = append(h.timers, time.AfterFunc(OwnWatch, func() {
		if ctx.Err() == nil {
			begin()
		}
	}))
}

// monitor() follows one node of the hold until the node is gone or the hold is over. It does not rely only on
// the watch: if the session loses the right to read the node, the server sends an event neither for this loss
// nor for the node's end. So monitor() looks at the node regularly, and more often if the node may not be
// read.
func (h *Hold) monitor(ctx context.Context, n Node, w *zk.Watch) {
	hidden := false
	for {
		if w == nil || session.IsClosed(w.Fired()) {
			if ctx.Err() != nil {
				return
			}
			s, gone, err := h.lookAt(ctx, n)
			if gone {
				h.nodeGone(ctx, n)
				return
			}
			if err != nil {
				if session.Pause(ctx, session.Heartbeat(h.g.Epoch.Timeout())) != nil {
					return // the hold is over
				}
				w = nil
				continue
			}
			w, hidden = s.Watch, s.Hidden
		}
		select {
		case <-session.FiredOf(w):
		case <-time.After(h.g.Epoch.LookAgain(hidden)):
			w = nil
		case <-ctx.Done():
			return
		}
	}
}

// lookAt reads and watches a node of the hold. A node that the session may not see counts as still there.
func (h *Hold) lookAt(ctx context.Context, n Node) (s session.Seen, gone bool, err error) {
	s, err = h.g.Epoch.See(ctx, n.Path, false)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return s, true, nil
	// The session may neither read the node nor list its directory, so count the node as still there.
	case errors.Is(err, zk.ErrNoAuth):
		return s, false, nil
	case err != nil:
		return s, false, err
	case !s.Listed && s.Stat.EphemeralOwner != h.g.Epoch.ID():
		return s, true, nil
	}
	if r, ok := recipe.RevocationIn(s.Data); ok {
		h.revoke(r)
	}
	return s, false, nil
}

// nodeGone ends the hold because its node n is gone, unless the client itself removed n.
func (h *Hold) nodeGone(ctx context.Context, n Node) {
	// A change of the mode may replace the node that the caller found gone. So wait until the change ends.
	h.awaitChange(ctx)
	if ctx.Err() != nil || h.g.Epoch.Ended() || !h.has(n) {
		return // this client released or replaced the node, or the node went with the session
	}
	h.lose(Removed, n)
}

// validUntil returns the time at which the hold ends if the client does not hear from the server.
func (h *Hold) validUntil() time.Time {
	until := h.g.Epoch.ValidUntil()
	if h.limited() {
		until = earlier(until, h.s.Keeper.Now().Wall.Add(h.g.MaxHold-h.held()))
	}
	for _, l := range h.g.Parts {
		until = earlier(until, l.h.validUntil())
	}
	return until
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// EpochOver ends the hold with its epoch.
func (h *Hold) EpochOver(why session.Reason) {
	h.lose([...]Reason{session.Expired: Expired, session.Silent: Deadline, session.Closed: Closed}[why])
}

// lose() ends the hold because the right to act is gone. Only the first call counts. A hold whose release is
// under way can no longer be lost. The argument `at` is the node that is gone, if the caller knows it.
func (h *Hold) lose(why Reason, at ...Node) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return
	}
	h.over = true
	n := append(at, h.nodes...)[0]
	what := Loss{Path: cmp.Or(n.lock, h.g.Path), Node: n.Path, Reason: why}
	cause := h.s.Cause(what)
	h.lost = &loss{what, cause}
	for _, l := range h.leases {
		l.cause = h.lost
		h.s.named.remove(l)
		l.cancel(cause)
		close(l.lost)
	}
	h.endUnlocked(cause)
	if h.granted {
		h.tell(Event{Kind: EventLost, Held: h.held(), Err: cause})
	}
	h.graceful = why == MaxHold && h.g.GraceNow() > 0 || h.lingers(why)
	h.stopTimers()
	if h.graceful && !h.lingers(why) {
		h.timers = append(h.timers, time.AfterFunc(h.g.GraceNow(), h.endGrace))
	}
	graceful := h.graceful
	h.mu.Unlock()

	h.g.Epoch.Remove(h)
	h.endLife()
	h.s.Keeper.Log().Info("lock lost", "path", h.g.Path, "reason", why.String())
	switch {
	case !graceful:
		h.abandon()
	case why == MaxHold && h.lingers(why):
		h.markOver()
	}
}
