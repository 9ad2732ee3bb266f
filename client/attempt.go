package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
)

// attempt is one call that asks for a lock.
type attempt struct {
	c       *Client
	path    string // as the user names the lock
	dir     string // where the contenders are
	mode    fence.Mode
	rw      bool // of a read-write lock
	try     bool
	cfg     *options
	start   time.Time
	task    string
	tasked  bool     // the context has named the task
	leave   func()   // gives the turn in the local queue to the next contender
	alone   bool     // neither nested nor in the local queue
	permits bool     // the queue is for permits: its first contender holds none
	value   []byte   // of a candidate; nil if the attempt is not for leadership
	dirs    []string // where it makes nodes, if not only in dir
}

// data returns the content of the attempt's node. A candidate's value is followed by the owner record only if
// the record is needed: if the candidate has a named task, which may hold other locks, or if the value alone
// would look like a record. Otherwise programs that read the whole content, such as those with Curator's
// recipes, see only the value.
func (a *attempt) data() []byte {
	switch {
	case a.value == nil:
		return recipe.EncodeOwner(a.owner())
	case a.tasked && a.cfg.layout == LayoutCurator, recipe.Mistakable(a.value):
		return recipe.EncodeValue(a.value, a.owner())
	}
	return a.value
}

func (a *attempt) owner() recipe.Owner {
	o := a.c.owner
	o.Task, o.Reason, o.Revocable = a.task, a.cfg.reason, a.cfg.revocable
	if a.cfg.maxHold > 0 {
		o.MaxHold, o.Grace = a.cfg.maxHold.String(), a.cfg.graceNow().String()
	}
	return o
}

// tell reports an event of the attempt.
func (a *attempt) tell(ev Event) { a.c.tell(a.path, a.cfg, ev) }

// listens reports whether any function receives the attempt's events.
func (a *attempt) listens() bool { return a.c.events != nil || a.cfg.events != nil }

// queued reports that the attempt has its place in the queue.
func (a *attempt) queued(n session.Made) {
	a.tell(Event{Kind: EventQueued, Node: n.Path, Mode: a.mode, Waited: time.Since(a.start)})
}

// requeueError says that the attempt's place is gone: why is ErrSessionExpired or
// ErrNodeRemoved.
type requeueError struct{ why error }

func (r *requeueError) Error() string { return "client: place in the queue lost: " + r.why.Error() }

// lostPlace turns the end of the session into the loss of the place.
func lostPlace(err error) error {
	if errors.Is(err, ErrSessionExpired) {
		return &requeueError{ErrSessionExpired}
	}
	return err
}

// way leads an attempt to a hold in one session.
type way func(ctx context.Context, e *session.Epoch, a *attempt) (*hold, error)

// compete runs the attempt in one session after another until it gets a lease or an error. An
// attempt that lost its place takes a new one, unless its options forbid that.
func (a *attempt) compete(ctx context.Context, run way) (*Lease, error) {
	for {
		e, err := a.c.keeper.Await(ctx)
		if err != nil {
			return nil, err
		}
		h, err := run(ctx, e, a)
		var l *Lease
		if err == nil {
			l, err = a.c.grant(ctx, h)
		}
		lost, hadPlace := errors.AsType[*requeueError](err)
		switch {
		case hadPlace && a.cfg.noRequeue:
			return nil, lost.why
		case hadPlace:
			a.tell(Event{Kind: EventRequeued, Mode: a.mode, Waited: time.Since(a.start), Err: lost.why})
		case !errors.Is(err, ErrSessionExpired) || a.cfg.noRequeue:
			return l, err
		}
	}
}

// acquire is the common part of all locks: reentrancy, the local queue, the grant and the retries.
func (c *Client) acquire(ctx context.Context, a *attempt, run way) (l *Lease, err error) {
	defer func() { err = errorAt(a.path, err) }()
	a.c, a.start, a.leave = c, time.Now(), func() {}
	if err := a.cfg.check(a.path); err != nil {
		return nil, err
	}
	if a.cfg.layout == LayoutLatch && a.value == nil || a.cfg.policySet && !a.rw && a.dirs == nil {
		return nil, fmt.Errorf("%w: a lock of this kind with the layout %v", ErrUnsupported, a.cfg.layout)
	}
	ctx, end := c.keeper.During(ctx)
	defer end()
	if ctx.Err() != nil {
		return nil, endOf(ctx)
	}
	if a.cfg.waitSet && a.cfg.wait == 0 {
		a.try = true
	}
	if l, err := nested(ctx, c, a); l != nil || err != nil {
		if err != nil && a.try {
			err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
		}
		return l, err
	}
	if a.cfg.wait > 0 {
		late := fmt.Errorf("%w within %v", ErrNotAcquired, a.cfg.wait)
		limited, cancel := context.WithTimeoutCause(ctx, a.cfg.wait, late)
		defer cancel()
		ctx = limited
	}
	a.tasked = taskIn(ctx) != ""
	a.task = taskOf(ctx)
	ctx = Task(ctx, a.task)
	outside := a.try && a.mode == fence.Permit && a.cfg.layout == LayoutCurator // it takes no queue place
	if a.mode != fence.Shared && !a.cfg.ownPlace && !a.alone && !outside {
		a.leave, err = c.localQueues.enter(ctx, localKey{a.cfg.layout, a.dir}, a.try)
		if err != nil {
			return nil, err
		}
	}
	dirs := a.dirs
	if dirs == nil {
		dirs = []string{a.dir}
	}
	c.keeper.Enter(dirs...)
	defer c.keeper.Leave(dirs...)
	if l, err = a.compete(ctx, run); err != nil {
		a.leave()
		return nil, publicErr(ctx, err)
	}
	return l, nil
}

func selfDeadlock(path, hint string) error {
	return fmt.Errorf("%w: %s: %s", ErrSelfDeadlock, path, hint)
}

// localQueues makes the exclusive contenders of one process for one path queue within the process, so that
// together they have one node in the server's queue. A turn is only the right to compete at the server: each
// hold has a node of its own, which no other attempt takes over.
type localQueues struct {
	mu sync.Mutex
	m  map[localKey][]chan struct{} // the contenders that wait while another has the turn
}

type localKey struct {
	layout Layout
	path   string
}

// enter waits for the turn, and returns the function that passes it to the next contender, which may
// be called more than once. A try takes the turn only if no other contender has it.
func (g *localQueues) enter(ctx context.Context, key localKey, try bool) (leave func(), err error) {
	leave = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pass(key)
	})
	g.mu.Lock()
	waiting, busy := g.m[key]
	if !busy || try {
		defer g.mu.Unlock()
		if busy {
			return nil, ErrNotAcquired
		}
		g.m[key] = nil
		return leave, nil
	}
	turn := make(chan struct{})
	g.m[key] = append(waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return leave, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.m[key], turn); i >= 0 {
		g.m[key] = slices.Delete(g.m[key], i, i+1)
	} else {
		g.pass(key) // the turn came at the same moment
	}
	return nil, endOf(ctx)
}

// pass gives the turn to the next contender. g.mu is held.
func (g *localQueues) pass(key localKey) {
	waiting := g.m[key]
	if len(waiting) == 0 {
		delete(g.m, key)
		return
	}
	close(waiting[0])
	g.m[key] = waiting[1:]
}

// heldBy returns the hold of path that ctx has. Permits do not exclude each other, so a context
// with a permit does not hold the path.
func heldBy(ctx context.Context, c *Client, path string) *hold {
	for outer := leaseIn(ctx); outer != nil; outer = outer.outer {
		for _, lease := range append([]*Lease{outer}, outer.h.parts...) {
			h := lease.h
			if h.c == c && h.parts == nil && h.path == path && h.modeNow() != fence.Permit &&
				lease.Err() == nil && outer.Err() == nil {
				return h
			}
		}
	}
	return nil
}

// named keeps the leases of tasks. A goroutine that locks a second time without the lease's
// context would wait for itself; the name of its task reveals that.
type named struct {
	mu sync.Mutex            // nothing else is locked while it is held
	m  map[taskPath][]*Lease // active leases
}

type taskPath struct{ task, path string }

// add registers a lease under the task that its context names.
func (n *named) add(l *Lease) {
	if l.mode == fence.Permit || l.h.parts != nil { // the parts are registered themselves
		return
	}
	k := taskPath{taskIn(l.ctx), l.h.path}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m[k] = append(n.m[k], l)
}

// remove is called when the lease is unlocked or lost.
func (n *named) remove(l *Lease) {
	k := taskPath{taskIn(l.ctx), l.h.path}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m[k] = slices.DeleteFunc(n.m[k], func(x *Lease) bool { return x == l })
	if len(n.m[k]) == 0 {
		delete(n.m, k)
	}
}

// check returns an error if the task of ctx holds path, so that a lock in mode would wait for itself.
func (n *named) check(ctx context.Context, path string, mode fence.Mode) error {
	task := taskIn(ctx)
	if task == "" || mode == fence.Permit {
		return nil
	}
	n.mu.Lock()
	leases := slices.Clone(n.m[taskPath{task, path}])
	n.mu.Unlock()
	for _, l := range leases {
		if mode == fence.Exclusive || l.h.modeNow() == fence.Exclusive {
			return selfDeadlock(path, fmt.Sprintf("task %q holds it; lock with the lease's context to say so", task))
		}
	}
	return nil
}

// taskIn returns the task of ctx, "" if ctx has no task.
func taskIn(ctx context.Context) string {
	task, _ := ctx.Value(taskKey{}).(string)
	return task
}

// taskOf returns the task of ctx, or a fresh one if ctx has no task.
func taskOf(ctx context.Context) string {
	if task := taskIn(ctx); task != "" {
		return task
	}
	return rand.Text()
}

// nested decides what an attempt gets if its context may already hold the path: a nested lease, an
// error, or nil, nil if the context does not hold it.
func nested(ctx context.Context, c *Client, a *attempt) (*Lease, error) {
	if a.mode == fence.Permit || a.alone {
		return nil, nil // a context may take more permits, or stand for election twice
	}
	path, mode := a.path, a.mode
	for {
		held := heldBy(ctx, c, path)
		if held == nil {
			return nil, c.named.check(ctx, path, mode)
		}
		if mode == fence.Exclusive && held.modeNow() == fence.Shared {
			return nil, selfDeadlock(path, "it holds a read lock; Upgrade turns that into a write lock")
		}
		if !a.cfg.reentrant {
			return nil, selfDeadlock(path, "WithReentrant allows this")
		}
		l, err := held.addLease(ctx, mode)
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, endOf(ctx)
		}
		// The lease was lost or downgraded just now: look again.
	}
}
