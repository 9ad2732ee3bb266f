package client

import (
	"context"
	"errors"
	"fmt"
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
	// place marks a queue node that the hold keeps while another node represents the hold.
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
	since session.Reading // when the hold began, never later than others may think
	leave func()          // gives the turn in the local queue to the next contender
	asked *attempt        // the attempt to which it was granted; a change of the mode asks on its behalf

	unnumbered error // for permits: why their numbers must not be used

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
	unlocked []*Lease      // leases unlocked before others of the hold; their contexts end with it
	unmark   []zk.Op       // lock delay: operations that remove this hold's mark from the directory
	changing chan struct{} // closed when the change of mode under way ends; nil while there is none
}

// newHold returns a hold that is not yet granted.
func newHold(a *attempt, e *session.Epoch, mode fence.Mode, token fence.Token, nodes ...heldNode) *hold {
	h := &hold{
		c: a.c, e: e, path: a.path, cfg: a.cfg, start: a.start, since: a.c.keeper.Now(),
		leave: a.leave, asked: a,
		nodes: nodes, mode: mode, token: token,
	}
	h.life, h.endLife = context.WithCancel(a.c.keeper.Calls())
	return h
}

// grant registers the hold and returns its first lease. On an error nothing is left of the hold.
func (c *Client) grant(ctx context.Context, h *hold) (*Lease, error) {
	var err error
	switch {
	case ctx.Err() != nil:
		err = endOf(ctx)
	case !h.e.Add(h):
		err = &requeueError{ErrSessionExpired}
	}
	if err != nil {
		h.endLife()
		h.discard(h.unmark)
		return nil, err
	}
	l, err := h.addLease(ctx, h.mode)
	if err != nil {
		return nil, &requeueError{ErrSessionExpired} // lost at this moment
	}
	h.watchNodes()
	h.watchLimit()
	return l, nil
}

// Lease is the right to act that a lock gives, until it is unlocked or lost. It belongs to one
// grant and never becomes valid again. It is safe for concurrent use.
type Lease struct {
	h      *hold
	outer  *Lease // the lease around it, if its context belongs to one
	ctx    context.Context
	cancel context.CancelCauseFunc

	lost    chan struct{}          // closed by the loss
	revoked chan recipe.Revocation // has room for the only one

	// Guarded by h.mu.
	mode     fence.Mode
	unlocked bool
	cause    *LostError // if it was lost before Unlock
}

func newLease(ctx context.Context, h *hold, mode fence.Mode) *Lease {
	l := &Lease{h: h, mode: mode, outer: leaseIn(ctx), lost: make(chan struct{}),
		revoked: make(chan recipe.Revocation, 1)}
	own := context.WithoutCancel(ctx) // ctx limits the wait, not the hold
	l.ctx, l.cancel = context.WithCancelCause(l.mark(own))
	if l.outer != nil && l.outer.h != h {
		// Work under this lock is work under the one around it too.
		end, cancel := l.outer.ctx, l.cancel
		stop := context.AfterFunc(end, func() { cancel(context.Cause(end)) })
		l.cancel = func(cause error) {
			stop()
			cancel(cause)
		}
	}
	return l
}

// mark returns a context that marks the lease as held.
func (l *Lease) mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

type leaseKey struct{}

// leaseIn returns the innermost lease that ctx is under. Goroutines have no identity, so the context
// says whether its user already holds a lock.
func leaseIn(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// Unlock gives the lock back. It returns nil if that was done, an error that is ErrLost if the
// lease was lost before (another holder may have been active by then), ErrReleasePending if ctx
// ended first (the release goes on in the background), and ErrNotHeld if the lease was unlocked
// before.
//
// Whatever Unlock returns, the next attempt may begin at once; it waits until the lock is released.
func (l *Lease) Unlock(ctx context.Context) error { return errorAt(l.h.path, l.unlock(ctx, false)) }

// Release is like Unlock, but does not wait for the server: it returns as soon as the request is on its way.
// Taking locks in quick succession is faster by a round trip and a write of the server. While the session
// lives, the release is as certain as that of Unlock. But a client that asks at once may still find the lock
// held, and Release does not report that another client removed the node just before. Close the client before
// the program exits.
func (l *Lease) Release() error { return errorAt(l.h.path, l.unlock(context.Background(), true)) }

func (l *Lease) unlock(ctx context.Context, early bool) error {
	h := l.h
	h.checkNow() // a lease past its deadline or its limit is lost, even before the client noticed
	h.mu.Lock()
	if l.unlocked {
		h.mu.Unlock()
		return ErrNotHeld
	}
	l.unlocked = true
	h.c.named.remove(l)
	h.leases = slices.DeleteFunc(h.leases, func(x *Lease) bool { return x == l })
	if l.cause != nil {
		last := len(h.leases) == 0
		h.mu.Unlock()
		if last { // the last Unlock removes the nodes that stayed
			h.endGrace()
		}
		return l.cause
	}
	if len(h.leases) > 0 {
		// The others' contexts may be children of this one's.
		h.unlocked = append(h.unlocked, l)
		down := h.asked.rw && h.mode == fence.Exclusive && l.mode == fence.Exclusive && !h.writes(nil)
		h.mu.Unlock()
		switch {
		case !down:
			return nil
		case early:
			h.c.keeper.Detached(func(ctx context.Context) { _ = h.downgradeOnce(ctx, nil) })
			return nil
		}
		err := h.downgrade(ctx, nil)
		switch {
		case errors.Is(err, ErrUnsupported):
			return nil // another write lease has come
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

// tell reports an event of the hold. h.mu is held, so that a grant is reported before its end.
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

// has reports whether a node still stands for the hold.
func (h *hold) has(n heldNode) bool {
	return slices.ContainsFunc(h.nodesNow(), func(m heldNode) bool { return m.path == n.path })
}

// release gives the lock back. If ctx ends, or early is set, the release goes on in the background. The
// hold was valid when its release began, so the work did not overlap with another holder's.
func (h *hold) release(ctx context.Context, early bool) error {
	h.e.Remove(h)
	var answered <-chan struct{}
	answer := func(bg context.Context) error {
		h.awaitChange(bg) // the nodes must be known
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

// settle makes sure that the nodes are removed, even if the request failed.
func (h *hold) settle(err error) error {
	nodes := h.nodesNow()
	refused, _ := errors.AsType[*zk.MultiError](err)
	switch {
	case err == nil, errors.Is(err, ErrSessionExpired), errors.Is(err, zk.ErrNoNode) && len(nodes) == 1:
		return err
	case isAmbiguous(err), errors.Is(err, zk.ErrThrottled), errors.Is(err, ErrClosed),
		h.c.keeper.Cleaning().Err() != nil,
		refused != nil && refused.Index >= len(nodes): // only the mark could not be written
		<-h.discard(h.unmark)
		if h.e.WhyOver() == session.Expired {
			return ErrSessionExpired
		}
		return nil
	}
	h.discard(h.unmark) // remove the others even if one node is gone or may not be removed
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
		// The session did not end by silence, so it may have ended during the work.
		return &LostError{Path: h.path, Node: h.nodes[0].path, Reason: Expired}
	case errors.Is(err, ErrSessionExpired):
		return nil // the node went with the session, after the work was done
	}
	return publicErr(context.Background(), err)
}
