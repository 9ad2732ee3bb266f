package client

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// reaper removes what nobody wants any more. It is never bounded by a caller's
// context: an entry stays until the node is gone, the server refuses for good, or
// the session is over and the node with it.
//
// An entry is in one of three places: in ready, in later, or with a worker.
// Workers are started as entries become ready and end when there are none, so up
// to reapParallel removals are on the wire at a time.
type reaper struct {
	c *Client

	mu      sync.Mutex
	ready   []*reapEntry
	later   reapHeap
	working int // workers
	n       int // entries in all three places
	timer   *time.Timer
	idle    chan struct{} // closed while there are no entries
	stopped bool
}

type reapEntry struct {
	e    *epoch
	dir  string // where the node is
	do   func(ctx context.Context) error
	done chan struct{}
	due  time.Time // while in later
	n    int       // attempts
}

// over reports whether the session, and with it the node, is gone.
func (x *reapEntry) over() bool { return x.e.ended() }

// reapHeap is ordered by due.
type reapHeap []*reapEntry

func (h reapHeap) Len() int           { return len(h) }
func (h reapHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h reapHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *reapHeap) Push(x any)        { *h = append(*h, x.(*reapEntry)) }
func (h *reapHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}

const (
	reapFirst    = 50 * time.Millisecond
	reapLast     = 5 * time.Second
	reapParallel = 128
)

func newReaper(c *Client) *reaper {
	r := &reaper{c: c, idle: make(chan struct{})}
	close(r.idle)
	return r
}

// reap removes a node. The channel is closed when it is gone or cannot be removed.
func (c *Client) reap(e *epoch, path string) <-chan struct{} {
	return c.reapFunc(e, parentOf(path), func(ctx context.Context) error { return c.delete(ctx, e, path, -1) })
}

// reapID removes the node of an attempt of which only the id is known.
func (c *Client) reapID(e *epoch, dir string, id nodeID) <-chan struct{} {
	return c.reapFunc(e, dir, func(ctx context.Context) error { return c.deleteID(ctx, e, dir, id) })
}

// deleteID finds and deletes the nodes that bear an id.
func (c *Client) deleteID(ctx context.Context, e *epoch, dir string, id nodeID) error {
	names, err := c.relist(ctx, e, dir)
	if err != nil {
		return err
	}
	for _, n := range bearing(names, id) {
		if err := c.delete(ctx, e, join(dir, n), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// reapFunc repeats f, which removes nodes in dir, until it succeeds, is refused,
// or the session is over.
func (c *Client) reapFunc(e *epoch, dir string, f func(ctx context.Context) error) <-chan struct{} {
	r := c.reaper
	x := &reapEntry{e: e, dir: dir, do: f, done: make(chan struct{})}
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		close(x.done)
		return x.done
	}
	if r.n == 0 {
		r.idle = make(chan struct{})
	}
	r.n++
	n := r.n
	c.crowd.abandon(dir)
	r.push(x)
	r.mu.Unlock()
	r.tell(n)
	return x.done
}

// push makes an entry ready. r.mu is held.
func (r *reaper) push(x *reapEntry) {
	r.ready = append(r.ready, x)
	if r.working < reapParallel {
		r.working++
		r.c.detached(r.work)
	}
}

// work is a worker: it removes one entry after another while there are any.
func (r *reaper) work(ctx context.Context) {
	for {
		r.mu.Lock()
		if len(r.ready) == 0 {
			r.working--
			r.mu.Unlock()
			return
		}
		x := r.ready[0]
		r.ready[0] = nil
		r.ready = r.ready[1:]
		r.mu.Unlock()
		if x.over() || r.c.isClosed() {
			r.finish(x, false)
			continue
		}
		r.settle(x, x.do(ctx))
	}
}

// settle decides what becomes of an entry after an attempt.
func (r *reaper) settle(x *reapEntry, err error) {
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode):
		r.finish(x, true)
	case x.over(), r.c.isClosed():
		r.finish(x, false)
	case zk.IsRefusal(err):
		r.c.opt.log.Warn("abandoned node cannot be removed before the session ends", "err", err)
		r.finish(x, false)
	default:
		r.mu.Lock()
		if r.stopped {
			r.mu.Unlock()
			r.finish(x, false)
			return
		}
		x.n++
		x.due = time.Now().Add(backoff(x.n, reapFirst, reapLast))
		heap.Push(&r.later, x)
		r.schedule()
		r.mu.Unlock()
	}
}

// schedule sets the timer for the first entry in later. r.mu is held.
func (r *reaper) schedule() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if len(r.later) > 0 {
		r.timer = time.AfterFunc(time.Until(r.later[0].due), func() { r.makeReady(time.Now()) })
	}
}

// makeReady moves the entries that are due by t.
func (r *reaper) makeReady(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.later) > 0 && !r.later[0].due.After(t) {
		r.push(heap.Pop(&r.later).(*reapEntry))
	}
	r.schedule()
}

// hurry tries all entries at once: their session is over, or the client closed.
func (r *reaper) hurry() { r.makeReady(time.Now().Add(2 * reapLast)) }

func (r *reaper) finish(x *reapEntry, gone bool) {
	r.c.crowd.gone(x.dir)
	r.mu.Lock()
	r.n--
	n := r.n
	if n == 0 {
		close(r.idle)
	}
	r.mu.Unlock()
	if gone {
		r.c.count.reaped.Add(1)
	}
	close(x.done)
	r.tell(n)
}

func (r *reaper) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *reaper) tell(n int) {
	if f := r.c.opt.hooks.OnReaper; f != nil {
		r.c.notifier.add(func() { f(n) })
	}
}

// drain waits until nothing is left to remove.
func (r *reaper) drain(ctx context.Context) error {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctxErr(ctx)
	}
}

// stop gives up: the session is being closed, which removes every node.
func (r *reaper) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.hurry()
}
