package client

import (
	"bytes"
	"container/list"
	"context"
	"sync"
	"time"
)

// localQueues lets the exclusive contenders of one process for one path queue in the
// process, so that they have one node in the server's queue and not one each.
type localQueues struct {
	mu sync.Mutex
	m  map[localKey]*list.List // of *localWaiter; an entry exists, nil at first, while somebody has the turn
}

// localWaiter waits for the turn.
type localWaiter struct {
	a  *attempt
	ch chan served // has room for one
}

type localKey struct {
	layout Layout
	path   string
}

// turn is the right to compete at the server. A nil turn is that of a contender
// that does not take part.
type turn struct {
	g    *localQueues
	key  localKey
	left bool // guarded by g.mu
}

// served is what a waiter gets: a turn, and the lock itself when it is handed over.
type served struct {
	turn *turn
	hold *hold
}

// enter waits for the turn, or takes it only if nobody has it. If the lock is handed
// over with it, the hold is not nil.
func (g *localQueues) enter(ctx context.Context, key localKey, a *attempt) (*turn, *hold, error) {
	g.mu.Lock()
	q, busy := g.m[key]
	switch {
	case !busy:
		g.m[key] = nil
		g.mu.Unlock()
		return &turn{g: g, key: key}, nil, nil
	case a.try:
		g.mu.Unlock()
		return nil, nil, ErrNotAcquired
	case q == nil:
		q = list.New()
		g.m[key] = q
	}
	w := &localWaiter{a, make(chan served, 1)}
	el := q.PushBack(w)
	g.mu.Unlock()
	select {
	case s := <-w.ch:
		return s.turn, s.hold, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	q.Remove(el) // nothing happens if it was served
	g.mu.Unlock()
	select {
	case s := <-w.ch: // served in the same instant
		s.giveBack()
	default:
	}
	return nil, nil, ctxErr(ctx)
}

// giveBack passes on what a waiter was served that had left.
func (s served) giveBack() {
	if s.hold == nil {
		s.turn.leave()
		return
	}
	h := s.hold
	h.mu.Lock()
	if h.over || h.pass() {
		h.mu.Unlock()
		return
	}
	h.over = true
	h.stopTimers()
	h.mu.Unlock()
	h.c.leaveBehind(dirsOf(h.nodesNow()), func(ctx context.Context) { _ = h.release(ctx) })
}

// leave gives the turn to the next. It may be called more than once.
func (t *turn) leave() {
	if t == nil {
		return
	}
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	if w := t.g.pop(t.key, nil); w != nil {
		w.ch <- served{turn: &turn{g: t.g, key: t.key}}
		return
	}
	delete(t.g.m, t.key)
}

// pop takes the first waiter out of a queue, if it is content with the hold that it
// would be given. g.mu is held.
func (g *localQueues) pop(key localKey, h *hold) *localWaiter {
	q := g.m[key]
	if q == nil || q.Len() == 0 || h != nil && !h.suits(q.Front().Value.(*localWaiter).a) {
		return nil
	}
	return q.Remove(q.Front()).(*localWaiter)
}

// suits reports whether the hold is what the attempt would come to by itself: its node
// is of that kind, and it ends as the attempt's options say.
func (h *hold) suits(a *attempt) bool {
	x, y := h.cfg, a.cfg
	if a.rw != (h.modes != nil) {
		return false
	}
	return x == y || x.maxHold == y.maxHold && x.lockDelay == y.lockDelay && x.strict == y.strict && x.linger == y.linger &&
		x.revocable == y.revocable && x.revokeGrace == y.revokeGrace && x.earlyUnlock == y.earlyUnlock &&
		(x.data == nil) == (y.data == nil) && bytes.Equal(x.data, y.data) && x.hooks.none() && y.hooks.none()
}

// pass hands the hold to the next local waiter, if that is allowed and there is
// one. h.mu is held.
func (h *hold) pass() bool {
	cfg := h.cfg
	switch {
	case h.turn == nil, h.passed >= cfg.handoffs, h.revoked != nil, cfg.maxHold > 0,
		cfg.handoffFor > 0 && time.Since(h.since) >= cfg.handoffFor, h.c.isDraining():
		return false
	}
	g := h.turn.g
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.pop(h.turn.key, h)
	if w == nil {
		return false
	}
	h.passed++
	h.c.count.handedOff.Add(1)
	w.ch <- served{turn: h.turn, hold: h}
	return true
}
