package hold

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Limits say when a hold ends although its holder has not given it back.
type Limits struct {
	MaxHold     time.Duration // 0: no limit
	Grace       time.Duration // how long the nodes stay after MaxHold; 0: the default; negative: not at all
	Linger      bool          // after a loss, the nodes stay until Unlock
	Revocable   bool
	RevokeGrace time.Duration
}

// GraceNow returns how long the nodes stay after MaxHold.
func (l *Limits) GraceNow() time.Duration {
	if l.Grace == 0 {
		return recipe.DefaultGrace
	}
	return max(l.Grace, 0)
}

// limited() reports whether the hold has a limit. The locks of a set have no limits, because the set itself
// has one.
func (h *Hold) limited() bool { return h.g.MaxHold > 0 }

// limitTick is how often a hold with a limit reads the clocks, because timers stand still while the machine
// is suspended.
const limitTick = 500 * time.Millisecond

// watchLimit ends the hold when it has lasted too long.
func (h *Hold) watchLimit() {
	if !h.limited() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	var t *time.Timer
	wait := func() time.Duration { return min(h.g.MaxHold-h.held(), limitTick) }
	t = time.AfterFunc(wait(), func() {
		h.mu.Lock()
		left := wait()
		if left > 0 && !h.over {
			t.Reset(left)
		}
		h.mu.Unlock()
		if left <= 0 {
			h.lose(MaxHold)
		}
	})
	h.timers = append(h.timers, t)
}

// wish() delivers a request to give the lock back. It returns false if there was a request before, or if the
// hold is over.
func (h *Hold) wish(r recipe.Revocation) bool {
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

// revoke() delivers a request to give the lock back. If the hold is revocable, it ends after its grace.
func (h *Hold) revoke(r recipe.Revocation) {
	if !h.wish(r) || !h.g.Revocable {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.timers = append(h.timers, time.AfterFunc(h.g.RevokeGrace, func() { h.lose(Revoked) }))
	}
}

// markOver notes in the nodes that the maximum hold is over. The nodes stay until Unlock. The note lets an
// operator break the lock ([Inspector.BreakExpired]). No client acts on the note by itself.
func (h *Hold) markOver() {
	for _, n := range h.nodesNow() {
		h.s.Keeper.Detached(func(ctx context.Context) {
			over := func(data []byte) ([]byte, error) { return recipe.MarkOver(data), nil }
			err := h.g.Epoch.Update(ctx, n.Path, over)
			if zk.IsRefusal(err) && !errors.Is(err, zk.ErrNoNode) {
				h.s.Keeper.Log().Warn("the end of the maximum hold cannot be recorded in the node of the holder",
					"path", h.g.Path, "err", err)
			}
		})
	}
}

// lingers() reports whether the nodes stay until Unlock. For a set it reports whether the nodes of any of its
// locks stay.
func (h *Hold) lingers(why Reason) bool {
	if slices.ContainsFunc(h.g.Parts, func(l *Lease) bool { return l.h.lingers(why) }) {
		return true
	}
	switch why {
	case Deadline, MaxHold, Revoked:
		return h.g.Linger
	}
	return false // the nodes are gone, or will go with the session
}

// endGrace removes the nodes that stayed after the lease was lost.
func (h *Hold) endGrace() {
	h.mu.Lock()
	was := h.graceful
	h.graceful = false
	h.mu.Unlock()
	if was {
		h.abandon()
	}
}
