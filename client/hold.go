package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// heldNode is a node that stands for a hold.
type heldNode struct {
	path string
	lock string    // the path of its lock, if the hold is of several
	w    *zk.Watch // set on it before the grant, if any
	// place marks a place in the queue that the hold keeps while another node stands for it.
	place bool
}

func (n heldNode) Dir() string { return recipe.Parent(n.path) }

// hold is one lock as the server sees it: its nodes, from grant to release or
// loss. Nested leases share it.
type hold struct {
	c     *Client
	e     *session.Epoch
	path  string // of the lock, as the user names it
	cfg   *options
	start time.Time       // of the call that asked for it
	since session.Reading // not later than others may count from
	leave func()          // gives the turn in the local queue to the next contender
	asked *attempt        // that it was granted to: a change of the mode asks in its place

	unnumbered error // of permits: why their numbers do not count

	parts   []*Lease        // of a hold of several locks that are held one by one
	life    context.Context // ends with the hold
	endLife context.CancelFunc

	mu       sync.Mutex
	nodes    []heldNode
	mode     fence.Mode
	token    fence.Token
	leases   []*Lease // not yet unlocked, also when the hold is lost
	granted  bool     // it had a lease
	over     bool     // released, being released, or lost
	lost     *LostError
	graceful bool // the nodes stay for the grace after MaxHold, or until Unlock
	revoked  *recipe.Revocation
	timers   []*time.Timer
	unlocked []*Lease      // before others of the hold; their contexts last as long
	unmark   []zk.Op       // lock delay: the directory names this hold, and these take it back
	changing chan struct{} // closed when the change of mode under way ends; nil while there is none
}

// tell passes an event of the hold on. h.mu is held, so that a grant is told before its end.
func (h *hold) tell(ev Event) {
	ev.Mode, ev.Token, ev.Node = h.mode, h.token, h.nodes[0].path
	h.c.tell(h.path, h.cfg, ev)
}

// addLease returns one more lease of the hold. It waits for a change of the mode, and fails if the
// hold does not cover the mode, or is over.
func (h *hold) addLease(ctx context.Context, mode fence.Mode) (*Lease, error) {
	l := newLease(ctx, h, mode)
	h.c.named.add(l)
	h.mu.Lock()
	for h.changing != nil && !h.over && ctx.Err() == nil {
		h.mu.Unlock()
		h.awaitChange(ctx)
		h.mu.Lock()
	}
	defer h.mu.Unlock()
	covered := mode == h.mode || mode == fence.Shared
	if h.over || h.changing != nil || !covered {
		h.c.named.remove(l)
		l.cancel(ErrNotHeld)
		return nil, ErrNotHeld
	}
	if h.leases = append(h.leases, l); !h.granted {
		h.granted = true
		h.tell(Event{Kind: EventGranted, Waited: time.Since(h.start)})
	}
	if h.revoked != nil {
		l.revoked <- *h.revoked
	}
	return l, nil
}

// writes reports whether a lease other than l needs the write lock. h.mu is held.
func (h *hold) writes(l *Lease) bool {
	return slices.ContainsFunc(h.leases, func(x *Lease) bool { return x != l && x.mode == fence.Exclusive })
}

func (h *hold) modeNow() fence.Mode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode
}

func (h *hold) nodesNow() []heldNode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.nodes)
}

// held returns how long the hold lasts.
func (h *hold) held() time.Duration { return h.c.keeper.Now().Since(h.since) }

// limited reports whether the hold has a limit. The locks of a set have none: the set has it.
func (h *hold) limited() bool { return h.cfg.maxHold > 0 }

// limitTick is how often a hold with a limit looks at the clocks. Timers stand still while the
// machine is suspended.
const limitTick = 500 * time.Millisecond

// watchLimit ends the hold when it has lasted too long.
func (h *hold) watchLimit() {
	if !h.limited() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	var t *time.Timer
	wait := func() time.Duration { return min(h.cfg.maxHold-h.held(), limitTick) }
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

// checkNow ends the hold if it is lost at this moment, by the clock or because a lock of the set is
// lost.
func (h *hold) checkNow() {
	if why := h.e.WhyOver(); why != 0 {
		h.EpochOver(why)
	}
	for _, l := range h.parts {
		if lost, ok := errors.AsType[*LostError](l.Err()); ok {
			h.lose(lost.Reason, heldNode{path: lost.Node, lock: lost.Path})
		}
	}
	if h.limited() && h.held() >= h.cfg.maxHold {
		h.lose(MaxHold)
	}
}

// validUntil returns when the hold ends if the client does not hear from the server.
func (h *hold) validUntil() time.Time {
	until := h.e.ValidUntil()
	if h.limited() {
		until = earlier(until, h.c.keeper.Now().Wall.Add(h.cfg.maxHold-h.held()))
	}
	for _, l := range h.parts {
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

// epochOver ends the hold with its epoch.
func (h *hold) EpochOver(why session.Reason) {
	h.lose([...]LostReason{session.Expired: Expired, session.Silent: Deadline, session.Closed: Closed}[why])
}

// lose ends the hold because the right to act is gone. Only the first call counts, and a hold under
// release can no longer be lost. at is the node to blame, if it is known.
func (h *hold) lose(why LostReason, at ...heldNode) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return
	}
	h.over = true
	n := append(at, h.nodes...)[0]
	cause := &LostError{Path: cmp.Or(n.lock, h.path), Node: n.path, Reason: why}
	h.lost = cause
	for _, l := range h.leases {
		l.cause = cause
		h.c.named.remove(l)
		l.cancel(cause)
		close(l.lost)
	}
	h.endUnlocked(cause)
	if h.granted {
		h.tell(Event{Kind: EventLost, Held: h.held(), Err: cause})
	}
	h.graceful = why == MaxHold && h.cfg.graceNow() > 0 || h.lingers(why)
	h.stopTimers()
	if h.graceful && !h.lingers(why) {
		h.timers = append(h.timers, time.AfterFunc(h.cfg.graceNow(), h.endGrace))
	}
	graceful := h.graceful
	h.mu.Unlock()

	h.e.Remove(h)
	h.endLife()
	h.c.keeper.Log().Info("lock lost", "path", h.path, "reason", why.String())
	switch {
	case !graceful:
		h.abandon()
	case why == MaxHold && h.lingers(why):
		h.markOver()
	}
}

// markOver notes in the nodes, which stay until Unlock, that the maximum hold is over: the note lets an
// operator break the lock ([Inspector.BreakExpired]). No client acts on it by itself.
func (h *hold) markOver() {
	for _, n := range h.nodesNow() {
		h.c.keeper.Detached(func(ctx context.Context) {
			over := func(data []byte) ([]byte, error) { return recipe.MarkOver(data), nil }
			err := h.e.Update(ctx, n.path, over)
			if zk.IsRefusal(err) && !errors.Is(err, zk.ErrNoNode) {
				h.c.keeper.Log().Warn("a holder over its maximum hold cannot note it in its node",
					"path", h.path, "err", err)
			}
		})
	}
}

// lingers reports whether the nodes stay until Unlock, of a set if those of one of its locks do.
func (h *hold) lingers(why LostReason) bool {
	if slices.ContainsFunc(h.parts, func(l *Lease) bool { return l.h.lingers(why) }) {
		return true
	}
	switch why {
	case Deadline, MaxHold, Revoked:
		return h.cfg.linger
	}
	return false // they are gone, or go with the session
}

// endGrace removes the nodes that stayed after the lease was lost.
func (h *hold) endGrace() {
	h.mu.Lock()
	was := h.graceful
	h.graceful = false
	h.mu.Unlock()
	if was {
		h.abandon()
	}
}

// endUnlocked ends the contexts of leases that were unlocked before the leases nested in them. h.mu
// is held.
func (h *hold) endUnlocked(cause error) {
	for _, l := range h.unlocked {
		l.cancel(cause)
	}
	h.unlocked = nil
}

// stopTimers is called with h.mu held.
func (h *hold) stopTimers() {
	for _, t := range h.timers {
		t.Stop()
	}
	h.timers = nil
}

// abandon gives the nodes to the reaper and the local turn to the next contender.
func (h *hold) abandon() {
	h.discard(nil)
	h.leave()
}

// discard gives the nodes to the reaper, with the mark of a lock delay if it is given; the channel is
// closed when they are gone.
func (h *hold) discard(unmark []zk.Op) <-chan struct{} {
	if h.parts == nil {
		return h.e.ReapMarked(pathsOf(h.nodesNow()), unmark)
	}
	gone := make(chan struct{})
	h.c.keeper.Detached(func(ctx context.Context) {
		defer close(gone)
		_ = unlockEach(ctx, h.parts)
	})
	return gone
}

func pathsOf(nodes []heldNode) []string {
	paths := make([]string, len(nodes))
	for i, n := range nodes {
		paths[i] = n.path
	}
	return paths
}

func deletes(nodes []heldNode) []zk.Op {
	ops := make([]zk.Op, len(nodes))
	for i, n := range nodes {
		ops[i] = zk.Delete{Path: n.path, Version: -1}
	}
	return ops
}

// beginChange announces that the nodes of the hold will be replaced; endChange ends the change,
// after h.replace or a failure. In between the nodes of the hold are unknown, so a release and a
// monitor wait. Changes come one after another. beginChange returns false if the hold is over.
func (h *hold) beginChange() bool {
	for {
		h.mu.Lock()
		former, over := h.changing, h.over
		if !over && former == nil {
			h.changing = make(chan struct{})
		}
		h.mu.Unlock()
		if over || former == nil {
			return !over
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

// changes reports whether a change is under way.
func (h *hold) changes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changing != nil
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
