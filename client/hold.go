package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// holdOps is what differs between recipes once a lock is held.
type holdOps interface {
	// release removes the nodes; ctx never ends. An ambiguous error is followed by
	// the reaper; ErrNoNode says that somebody had removed them before.
	release(ctx context.Context, h *hold) error
	// downgrade turns an exclusive hold into a shared one and calls h.replace.
	downgrade(ctx context.Context, h *hold) error
	// upgrade turns a shared hold into an exclusive one and calls h.replace.
	upgrade(ctx context.Context, h *hold, try bool) error
}

// heldNode is a node that stands for a hold.
type heldNode struct {
	path  string
	id    nodeID
	seq   int32
	czxid int64      // where the path alone does not tell one node from another
	lock  string     // the path of its lock, if the hold is of several
	mode  fence.Mode // likewise
	w     *zk.Watch  // set on it before the grant, if any
}

// errNotValid says that the session may be over, so that nothing can be granted.
var errNotValid = errors.New("client: session not valid")

// hold is one lock as the server sees it: its nodes, from grant to release or
// loss. Several leases may share it, nested or one after another.
type hold struct {
	c     *Client
	e     *epoch
	path  string // as the user names the lock
	cfg   *lockConfig
	ops   holdOps
	turn  *turn // in the local queue, may be nil
	since time.Time
	wait  time.Duration

	marked  bool     // lock delay: the directory names this hold
	parts   []*Lease // of a hold of several locks that are held one by one
	ended   <-chan struct{}
	life    context.Context // ends with the hold, as ended does
	endLife context.CancelFunc

	mu       sync.Mutex
	nodes    []heldNode
	mode     fence.Mode
	token    fence.Token
	leases   []*Lease // not yet unlocked
	over     bool     // released, being released, or lost
	lost     *LostError
	graceful bool // the nodes stay for the grace after MaxHold, or until Unlock
	passed   int  // hand-offs so far
	revoked  *Revocation
	timers   []*time.Timer
	unlocked []*Lease // before others of the hold; their contexts last as long
	change   modeChange
}

// newHold returns a hold that is not yet granted.
func newHold(a *attempt, e *epoch, ops holdOps, mode fence.Mode, token fence.Token, nodes ...heldNode) *hold {
	h := &hold{
		c: a.c, e: e, path: a.path, cfg: a.cfg, ops: ops, turn: a.turn, nodes: nodes, mode: mode, token: token,
		wait: time.Since(a.start), since: time.Now(),
	}
	h.life, h.endLife = context.WithCancel(context.Background())
	h.ended = h.life.Done()
	return h
}

// errLostEarly says that a hold was lost while it was being granted; its nodes
// are with the reaper.
var errLostEarly = errors.New("client: lost while being granted")

// grant makes the hold count and returns its first lease. On an error other than
// errLostEarly nothing is registered and the nodes still stand.
func (c *Client) grant(ctx context.Context, h *hold) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, ctxErr(ctx)
	}
	if c.isDraining() {
		return nil, ErrClosed
	}
	if !h.e.add(h) {
		return nil, errNotValid
	}
	l, err := h.addLease(ctx, h.mode)
	if err != nil {
		return nil, errLostEarly
	}
	h.watchNodes()
	h.mu.Lock()
	if h.cfg.maxHold > 0 && !h.over {
		h.timers = append(h.timers, time.AfterFunc(h.cfg.maxHold, func() { h.lose(MaxHold) }))
	}
	h.mu.Unlock()
	c.count.granted.Add(1)
	c.tell(&h.cfg.hooks, pickGrant, h.event(LockEvent{Waited: h.wait}))
	return l, nil
}

// event fills in what describes the hold.
func (h *hold) event(ev LockEvent) LockEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	ev.Path, ev.Mode, ev.Token = h.path, h.mode, h.token
	if len(h.nodes) > 0 {
		ev.Node = h.nodes[0].path
	}
	return ev
}

// addLease gives out one more lease of the hold.
func (h *hold) addLease(ctx context.Context, mode fence.Mode) (*Lease, error) {
	l := newLease(ctx, h, mode)
	h.c.named.add(ctx, l)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		h.c.named.remove(l)
		l.cancel(h.lostErr())
		return nil, ErrNotHeld
	}
	h.leases = append(h.leases, l)
	if h.revoked != nil {
		l.wish(*h.revoked)
	}
	return l, nil
}

// lostErr is h.lost as an error. h.mu is held.
func (h *hold) lostErr() error {
	if h.lost == nil {
		return nil
	}
	return h.lost
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

// replace changes the nodes of the hold after an upgrade or downgrade. The token
// stays unless one is given.
func (h *hold) replace(mode fence.Mode, token fence.Token, w *zk.Watch, nodes ...heldNode) {
	h.mu.Lock()
	h.nodes, h.mode = nodes, mode
	if w != nil {
		h.nodes[0].w = w
	}
	if token != 0 {
		h.token = token
	}
	h.mu.Unlock()
	h.watchNodes()
}

// lose ends the hold because the right to act is gone. It is the first call that
// counts; a hold that is being released is not lost any more.
func (h *hold) lose(why LostReason) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return
	}
	h.over = true
	h.lost = &LostError{Path: h.path, Reason: why}
	if len(h.nodes) > 0 {
		h.lost.Node = h.nodes[0].path
	}
	cause := h.lost
	leases := h.leases
	h.leases = nil
	h.graceful = why == MaxHold && h.cfg.maxHoldGrace > 0 || h.lingers(why)
	h.stopTimers()
	if h.graceful && !h.lingers(why) {
		h.timers = append(h.timers, time.AfterFunc(h.cfg.maxHoldGrace, h.endGrace))
	}
	graceful := h.graceful
	h.mu.Unlock()

	h.e.remove(h)
	for _, l := range leases {
		l.end(cause)
	}
	h.endUnlocked(cause)
	h.endLife()
	h.c.count.lost.Add(1)
	h.c.opt.log.Info("lock lost", "path", h.path, "reason", why.String())
	h.c.tell(&h.cfg.hooks, pickLost, h.event(LockEvent{Held: time.Since(h.since), Err: cause}))
	if !graceful {
		h.abandon()
	}
}

// lingers reports whether the nodes stay until Unlock.
func (h *hold) lingers(why LostReason) bool {
	switch why {
	case Deadline, Disconnected, MaxHold, Revoked:
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

// endUnlocked ends the contexts of leases that were unlocked before those nested
// in them.
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

// abandon gives the nodes to the reaper and the local turn to the next. The
// channel is closed when the nodes are gone.
func (h *hold) abandon() <-chan struct{} {
	done := make(chan struct{})
	if h.e.ended() {
		h.turn.leave()
		close(done) // they went with the session
		return done
	}
	chans := h.discard()
	h.turn.leave()
	h.c.detached(func(context.Context) {
		defer close(done)
		for _, ch := range chans {
			<-ch
		}
	})
	return done
}

// discarder is a recipe whose nodes must not be removed by their path alone.
type discarder interface {
	discard(h *hold) []<-chan struct{}
}

// discard gives the nodes to the reaper; the channels are closed when they are gone.
func (h *hold) discard() []<-chan struct{} {
	if d, ok := h.ops.(discarder); ok {
		return d.discard(h)
	}
	var gone []<-chan struct{}
	for _, n := range h.nodesNow() {
		gone = append(gone, h.c.reap(h.e, n.path))
	}
	return gone
}

// quickReleaser is a recipe that can send a release without further ado; nil if not now.
type quickReleaser interface {
	quick(h *hold) *zk.Reply[struct{}]
}

// release gives the lock back. When ctx ends it goes on in the background. The lock
// was still held when the release began, so the work did not overlap with another
// holder's.
func (h *hold) release(ctx context.Context) error {
	h.e.remove(h)
	h.endUnlocked(context.Canceled)
	defer func() {
		h.c.count.released.Add(1)
		h.c.tell(&h.cfg.hooks, pickRelease, h.event(LockEvent{Held: time.Since(h.since)}))
	}()
	if q, ok := h.ops.(quickReleaser); ok {
		if r := q.quick(h); r != nil {
			h.endLife()
			return h.released(ctx, r)
		}
	}
	res := make(chan error, 1)
	h.c.detached(func(bg context.Context) {
		h.awaitChange(bg) // which nodes there are must be known
		h.endLife()
		err := h.settleRelease(h.ops.release(bg, h))
		h.turn.leave()
		res <- err
	})
	select {
	case err := <-res:
		return h.releaseErr(err)
	case <-ctx.Done():
		select {
		case err := <-res:
			return h.releaseErr(err)
		default:
			h.c.leaveBehind(h.nodesNow(), func(context.Context) { <-res }) //nolint:errcheck // nobody asks any more
			return pendingErr(ctx)
		}
	}
}

// letGo gives back what nobody was told of, without waiting. It is sent at once:
// what this client asks next, a try above all, must not find it.
func (h *hold) letGo() {
	if q, ok := h.ops.(quickReleaser); ok {
		if r := q.quick(h); r != nil {
			h.endLife()
			h.settleBehind(r)
			return
		}
	}
	h.endLife()
	h.discard()
}

// settleBehind sees to a release that was sent and that nobody waits for.
func (h *hold) settleBehind(r *zk.Reply[struct{}]) {
	h.c.leaveBehind(h.nodesNow(), func(bg context.Context) {
		_, err := r.Wait(bg)
		if err = h.settleRelease(err); err != nil {
			h.c.opt.log.Debug("early unlock", "path", h.path, "err", err)
		}
	})
}

// released waits for the answer to a quick release.
func (h *hold) released(ctx context.Context, r *zk.Reply[struct{}]) error {
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
	res := make(chan error, 1)
	h.c.detached(func(bg context.Context) {
		_, err := r.Wait(bg)
		res <- h.settleRelease(err)
	})
	select {
	case err := <-res:
		return h.releaseErr(err)
	case <-ctx.Done():
		h.c.leaveBehind(h.nodesNow(), func(context.Context) { <-res }) //nolint:errcheck // nobody asks any more
		return pendingErr(ctx)
	}
}

// settleRelease sees to it that the nodes go, whatever became of the request.
func (h *hold) settleRelease(err error) error {
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, ErrSessionExpired):
		return err
	case isAmbiguous(err), errors.Is(err, ErrClosed):
		<-h.abandon()
		return nil
	}
	h.abandon()
	return err
}

// releaseErr says what a failed release means to the user.
func (h *hold) releaseErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return &LostError{Path: h.path, Node: h.nodes[0].path, Reason: Removed}
	case errors.Is(err, ErrSessionExpired):
		return nil // the node went with the session, after the work was done
	}
	return publicErr(err)
}
