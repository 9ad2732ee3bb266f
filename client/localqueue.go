package client

import (
	"container/list"
	"context"
	"sync"
)

// localQueues lets the exclusive contenders of one process for one path queue in the process, so
// that together they have one node in the server's queue. A turn is only the right to compete at
// the server: every hold has a node of its own, and no other attempt takes it over.
type localQueues struct {
	mu sync.Mutex
	m  map[localKey]*list.List // of chan *turn; an entry exists, nil at first, while a contender has the turn
}

type localKey struct {
	layout Layout
	path   string
}

// turn is the right to compete at the server. A contender that does not queue locally has a nil
// turn.
type turn struct {
	g    *localQueues
	key  localKey
	left bool // guarded by g.mu
}

// enter waits for the turn. A try takes it only if no other contender has it.
func (g *localQueues) enter(ctx context.Context, key localKey, try bool) (*turn, error) {
	g.mu.Lock()
	q, busy := g.m[key]
	switch {
	case !busy:
		g.m[key] = nil
		g.mu.Unlock()
		return &turn{g: g, key: key}, nil
	case try:
		g.mu.Unlock()
		return nil, ErrNotAcquired
	case q == nil:
		q = list.New()
		g.m[key] = q
	}
	served := make(chan *turn, 1)
	el := q.PushBack(served)
	g.mu.Unlock()
	select {
	case t := <-served:
		return t, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	q.Remove(el) // nothing happens if it was served
	g.mu.Unlock()
	select {
	case t := <-served: // in the same instant
		t.leave()
	default:
	}
	return nil, ctxErr(ctx)
}

// leave passes the turn to the next contender. It may be called more than once.
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
	q := t.g.m[t.key]
	if q == nil || q.Len() == 0 {
		delete(t.g.m, t.key)
		return
	}
	q.Remove(q.Front()).(chan *turn) <- &turn{g: t.g, key: t.key}
}
