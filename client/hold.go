package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// heldNode is a node that stands for a hold.
type heldNode struct {
	path string
	id   recipe.ID
	seq  int32
	lock string     // the path of its lock, if the hold is of several
	mode fence.Mode // likewise
	w    *zk.Watch  // set on it before the grant, if any
	// place marks a place in the queue that the hold keeps while another node stands for it.
	place bool
}

func (n heldNode) dir() string { return recipe.Parent(n.path) }

// dirsOf returns the directory of each node.
func dirsOf[N interface{ dir() string }](nodes []N) []string {
	dirs := make([]string, len(nodes))
	for i, n := range nodes {
		dirs[i] = n.dir()
	}
	return dirs
}

// hold is one lock as the server sees it: its nodes, from grant to release or
// loss. Nested leases share it.
type hold struct {
	c     *Client
	e     *epoch
	path  string // as the user names the lock
	cfg   *options
	turn  *turn // in the local queue, may be nil
	since time.Time
	wait  time.Duration

	modes   modes           // nil if the lock cannot be downgraded or upgraded
	parts   []*Lease        // of a hold of several locks that are held one by one
	life    context.Context // ends with the hold
	endLife context.CancelFunc

	mu       sync.Mutex
	nodes    []heldNode
	mode     fence.Mode
	token    fence.Token
	leases   []*Lease // not yet unlocked
	over     bool     // released, being released, or lost
	lost     error    // a *LostError, if it was lost
	graceful bool     // the nodes stay for the grace after MaxHold, or until Unlock
	revoked  *recipe.Revocation
	timers   []*time.Timer
	unlocked []*Lease      // before others of the hold; their contexts last as long
	unmark   []zk.Op       // lock delay: the directory names this hold, and these take it back
	changing chan struct{} // closed when the change of mode under way ends; nil while there is none
}

// newHold returns a hold that is not yet granted.
func newHold(a *attempt, e *epoch, mode fence.Mode, token fence.Token, nodes ...heldNode) *hold {
	h := &hold{
		c: a.c, e: e, path: a.path, cfg: a.cfg, turn: a.turn, nodes: nodes, mode: mode, token: token,
		wait: time.Since(a.start), since: time.Now(),
	}
	h.life, h.endLife = context.WithCancel(a.c.calls)
	return h
}

// grant registers the hold and returns its first lease. On an error nothing is left of the hold.
func (c *Client) grant(ctx context.Context, h *hold) (*Lease, error) {
	var err error
	switch {
	case ctx.Err() != nil:
		err = ctxErr(ctx)
	case !h.e.add(h):
		err = &requeueError{ErrSessionExpired}
	}
	if err != nil {
		h.endLife()
		if h.unmark != nil {
			c.reapMarked(h.e, pathsOf(h.nodes), h.unmark)
		} else {
			h.discard()
		}
		return nil, err
	}
	l, err := h.addLease(ctx, "", h.mode)
	if err != nil {
		return nil, &requeueError{ErrSessionExpired} // lost at this moment
	}
	h.watchNodes()
	h.mu.Lock()
	if h.cfg.limit.Hold > 0 && !h.over {
		h.timers = append(h.timers, time.AfterFunc(h.cfg.limit.Hold, func() { h.lose(MaxHold) }))
	}
	h.mu.Unlock()
	c.tell(&h.cfg.hooks, (*Hooks).grant, h.event(LockEvent{Waited: h.wait}))
	return l, nil
}

// event adds to ev what describes the hold.
func (h *hold) event(ev LockEvent) LockEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	ev.Path, ev.Mode, ev.Token = h.path, h.mode, h.token
	ev.Node = h.nodes[0].path
	return ev
}

// addLease returns one more lease of the hold, or of one of its locks if path names one.
func (h *hold) addLease(ctx context.Context, path string, mode fence.Mode) (*Lease, error) {
	l := newLease(ctx, h, path, mode)
	h.c.named.add(ctx, l)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		h.c.named.remove(l)
		l.cancel(h.lost)
		return nil, ErrNotHeld
	}
	h.leases = append(h.leases, l)
	if h.revoked != nil {
		l.wish(*h.revoked)
	}
	return l, nil
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

// whyOver returns why the hold is lost at this moment by the clock, and 0 while it is not.
func (h *hold) whyOver() LostReason {
	if why := h.e.whyOver(); why != 0 {
		return why
	}
	if limit := h.cfg.limit.Hold; limit > 0 && h.parts == nil && time.Since(h.since) >= limit {
		return MaxHold
	}
	return 0
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
	leases := h.leases
	h.leases = nil
	h.graceful = why == MaxHold && h.cfg.limit.grace() > 0 || h.lingers(why)
	h.stopTimers()
	if h.graceful && !h.lingers(why) {
		h.timers = append(h.timers, time.AfterFunc(h.cfg.limit.grace(), h.endGrace))
	}
	graceful := h.graceful
	h.mu.Unlock()

	h.e.remove(h)
	for _, l := range leases {
		l.end(cause)
	}
	h.endUnlocked(cause)
	h.endLife()
	h.c.opt.log.Info("lock lost", "path", h.path, "reason", why.String())
	h.c.tell(&h.cfg.hooks, (*Hooks).lost, h.event(LockEvent{Held: time.Since(h.since), Err: cause}))
	if !graceful {
		h.abandon()
	}
}

// lingers reports whether the nodes stay until Unlock.
func (h *hold) lingers(why LostReason) bool {
	switch why {
	case Deadline, MaxHold, Revoked:
		return h.cfg.limit.Linger
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

// endUnlocked ends the contexts of leases that were unlocked before the leases nested in them.
func (h *hold) endUnlocked(cause error) {
	h.mu.Lock()
	ls := h.unlocked
	h.unlocked = nil
	h.mu.Unlock()
	for _, l := range ls {
		l.cancel(cause)
	}
}

// stopTimers is called with h.mu held.
func (h *hold) stopTimers() {
	for _, t := range h.timers {
		t.Stop()
	}
	h.timers = nil
}

// abandon gives the nodes to the reaper and the local turn to the next contender. The channel
// closes when the nodes are gone.
func (h *hold) abandon() <-chan struct{} {
	gone := h.discard()
	h.turn.leave()
	return gone
}

// discard gives the nodes to the reaper; the channel is closed when they are gone.
func (h *hold) discard() <-chan struct{} {
	if h.parts == nil {
		return h.c.reap(h.e, pathsOf(h.nodesNow())...)
	}
	gone := make(chan struct{})
	h.c.detached(func(ctx context.Context) {
		defer close(gone)
		_ = unlockEach(ctx, h.parts)
	})
	return gone
}

// release gives the lock back. If ctx ends, the release goes on in the background. The hold was
// valid when its release began, so the work did not overlap with another holder's.
func (h *hold) release(ctx context.Context) error {
	h.e.remove(h)
	h.endUnlocked(context.Canceled)
	defer func() {
		h.c.tell(&h.cfg.hooks, (*Hooks).release, h.event(LockEvent{Held: time.Since(h.since)}))
	}()
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
