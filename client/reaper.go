package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// reaper removes what nobody wants any more. It is never bounded by a caller's
// context: an entry stays until the node is gone, the server refuses for good, or
// the session is over and the node with it.
type reaper struct {
	c    *Client
	wake chan struct{}

	mu      sync.Mutex
	entries map[*reapEntry]struct{}
	idle    chan struct{} // closed while there are no entries
	stopped bool
}

type reapEntry struct {
	e    *epoch
	do   func(ctx context.Context) error
	done chan struct{}
	due  time.Time
	n    int
	busy bool
}

// over reports whether the session, and with it the node, is gone.
func (x *reapEntry) over() bool { return x.e != nil && x.e.ended() }

const (
	reapFirst    = 50 * time.Millisecond
	reapLast     = 5 * time.Second
	reapParallel = 32
)

func newReaper(c *Client) *reaper {
	r := &reaper{c: c, wake: make(chan struct{}, 1), entries: map[*reapEntry]struct{}{}, idle: make(chan struct{})}
	close(r.idle)
	return r
}

// reap removes a node. The channel is closed when it is gone or cannot be removed.
func (c *Client) reap(e *epoch, path string) <-chan struct{} {
	return c.reapFunc(e, func(ctx context.Context) error { return c.delete(ctx, e, path, -1) })
}

// reapID removes the node of an attempt of which only the id is known.
func (c *Client) reapID(e *epoch, dir string, id nodeID) <-chan struct{} {
	return c.reapFunc(e, func(ctx context.Context) error { return c.deleteID(ctx, e, dir, id) })
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

// reapStray removes the node of an attempt whose session is over, in case its
// request slipped into the next session: the library sends in a new session what
// was waiting to be sent in the old one.
func (c *Client) reapStray(dir string, id nodeID) <-chan struct{} {
	return c.reapFunc(nil, func(ctx context.Context) error {
		e, err := c.liveEpoch(ctx)
		if err != nil {
			return err
		}
		return c.deleteID(ctx, e, dir, id)
	})
}

// reapFunc repeats f until it succeeds, is refused, or the session is over. With
// no session the entry outlives all.
func (c *Client) reapFunc(e *epoch, f func(ctx context.Context) error) <-chan struct{} {
	r := c.reaper
	x := &reapEntry{e: e, do: f, done: make(chan struct{})}
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		close(x.done)
		return x.done
	}
	if len(r.entries) == 0 {
		r.idle = make(chan struct{})
	}
	r.entries[x] = struct{}{}
	n := len(r.entries)
	r.mu.Unlock()
	r.tell(n)
	r.kick()
	return x.done
}

func (r *reaper) kick() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reaper) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
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

// run works until the client is closed.
func (r *reaper) run() {
	slots := make(chan struct{}, reapParallel)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(r.round(slots))
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.c.closing:
			r.dropAll()
			return
		}
	}
}

// round starts what is due and returns when the next entry will be.
func (r *reaper) round(slots chan struct{}) time.Duration {
	now := time.Now()
	next := time.Hour
	var start, over []*reapEntry
	r.mu.Lock()
	for x := range r.entries {
		switch {
		case x.busy:
		case x.over():
			over = append(over, x)
		case x.due.After(now):
			next = min(next, x.due.Sub(now))
		default:
			x.busy = true
			start = append(start, x)
		}
	}
	r.mu.Unlock()
	for _, x := range over {
		r.finish(x, false)
	}
	for _, x := range start {
		select {
		case slots <- struct{}{}:
		case <-r.c.closing:
			return next
		}
		r.c.detached(func(ctx context.Context) {
			err := x.do(ctx)
			<-slots
			r.settle(x, err)
		})
	}
	return next
}

// settle decides what becomes of an entry after an attempt.
func (r *reaper) settle(x *reapEntry, err error) {
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode):
		r.finish(x, true)
	case x.over():
		r.finish(x, false)
	case isDefinite(err) && !errors.Is(err, ErrClosed):
		r.c.opt.log.Warn("abandoned node cannot be removed before the session ends", "err", err)
		r.finish(x, false)
	default:
		r.mu.Lock()
		x.n++
		x.busy = false
		x.due = time.Now().Add(backoff(x.n, reapFirst, reapLast))
		r.mu.Unlock()
		r.kick()
	}
}

func (r *reaper) finish(x *reapEntry, gone bool) {
	r.mu.Lock()
	_, known := r.entries[x]
	delete(r.entries, x)
	n := len(r.entries)
	if known && n == 0 {
		close(r.idle)
	}
	r.mu.Unlock()
	if !known {
		return
	}
	if gone {
		r.c.count.reaped.Add(1)
	}
	close(x.done)
	r.tell(n)
}

// dropAll gives up: the session is being closed, which removes every node.
func (r *reaper) dropAll() {
	r.mu.Lock()
	r.stopped = true
	var all []*reapEntry
	for x := range r.entries {
		all = append(all, x)
	}
	r.mu.Unlock()
	for _, x := range all {
		r.finish(x, false)
	}
}
