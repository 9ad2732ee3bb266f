package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// attempt is one call that asks for a lock.
type attempt struct {
	c      *Client
	path   string // as the user names the lock
	dir    string // where the contenders are
	mode   fence.Mode
	rw     bool // of a read-write lock
	try    bool
	cfg    *options
	start  time.Time
	task   string
	tasked bool // the context has named the task
	turn   *turn
	alone  bool     // neither nested nor in the local queue
	value  []byte   // of a candidate; nil if the attempt is not for leadership
	dirs   []string // where it makes nodes, if not only in dir
}

// data returns the content of the attempt's node. The owner record stands behind a candidate's
// value only if it is of use: if it names the task of other locks, too. Programs that read the whole
// content, as those with Curator's recipes do, see the value alone otherwise.
func (a *attempt) data() []byte {
	switch {
	case a.value == nil:
		return recipe.EncodeOwner(a.owner())
	case a.tasked && a.cfg.layout == LayoutCurator:
		return recipe.EncodeValue(a.value, a.owner())
	}
	return a.value
}

func (a *attempt) owner() recipe.Owner {
	o := a.c.owner
	o.Task, o.Reason, o.Revocable = a.task, a.cfg.reason, a.cfg.revocable
	if l := a.cfg.limit; l.Hold > 0 {
		o.MaxHold, o.Grace, o.Breakable = l.Hold.String(), l.grace().String(), l.Break
	}
	return o
}

// enqueued tells the hooks that the attempt has its place in the queue.
func (a *attempt) enqueued(n created) {
	a.c.tell(LockEvent{Path: a.path, Node: n.path, Mode: a.mode, Waited: time.Since(a.start)},
		a.c.opt.hooks.OnEnqueue, a.cfg.hooks.OnEnqueue)
}

// requeued decides whether an attempt that lost its place queues again. It returns nil if so, and
// otherwise the error that ends the attempt.
func (a *attempt) requeued(why error) error {
	if a.cfg.noRequeue {
		return why
	}
	a.c.tell(LockEvent{Path: a.path, Mode: a.mode, Waited: time.Since(a.start), Err: why},
		a.c.opt.hooks.OnRequeue, a.cfg.hooks.OnRequeue)
	return nil
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
type way func(ctx context.Context, e *epoch, a *attempt) (*hold, error)

// compete runs the attempt in one session after another until it gets a lease or an error. An
// attempt that lost its place takes a new one, unless its options forbid that.
func (a *attempt) compete(ctx context.Context, run way) (*Lease, error) {
	for {
		e, err := a.c.epoch(ctx)
		if err != nil {
			return nil, err
		}
		h, err := run(ctx, e, a)
		var l *Lease
		if err == nil {
			l, err = a.c.grant(ctx, h)
		}
		lost, ok := errors.AsType[*requeueError](err)
		switch {
		case ok:
			if err := a.requeued(lost.why); err != nil {
				return nil, err
			}
		case errors.Is(err, ErrSessionExpired) && !a.cfg.noRequeue:
			// The session ended before there was a place to lose.
		default:
			return l, err
		}
	}
}

// acquire does what all locks have in common: reentrancy, the local queue, the grant and the
// retries.
func (c *Client) acquire(ctx context.Context, a *attempt, run way) (l *Lease, err error) {
	defer func() { err = errorAt(a.path, err) }()
	a.c, a.start = c, time.Now()
	if err := a.cfg.check(a.path); err != nil {
		return nil, err
	}
	if a.cfg.layout == LayoutLatch && a.value == nil || a.cfg.policySet && !a.rw && a.dirs == nil {
		return nil, fmt.Errorf("%w: a lock of this kind with the layout %v", ErrUnsupported, a.cfg.layout)
	}
	ctx, end := c.during(ctx)
	defer end()
	if ctx.Err() != nil {
		return nil, ctxErr(ctx)
	}
	if l, err := nested(ctx, c, a); l != nil || err != nil {
		if err != nil && a.try {
			err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
		}
		return l, err
	}
	if a.cfg.waitSet && a.cfg.wait == 0 {
		a.try = true
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
	if a.mode != fence.Shared && !a.cfg.noLocalQueue && !a.alone {
		t, err := c.localQueues.enter(ctx, localKey{a.cfg.layout, a.dir}, a.try)
		if err != nil {
			return nil, err
		}
		a.turn = t
	}
	dirs := a.dirs
	if dirs == nil {
		dirs = []string{a.dir}
	}
	c.crowd.enter(dirs...)
	defer c.crowd.leave(dirs...)
	if l, err = a.compete(ctx, run); err != nil {
		a.turn.leave()
		return nil, publicErr(ctx, err)
	}
	return l, nil
}

func selfDeadlock(path, hint string) error {
	return fmt.Errorf("%w: %s: %s", ErrSelfDeadlock, path, hint)
}

// checkPath refuses text that cannot be the path of a lock.
func checkPath(p string) error {
	why := ""
	switch {
	case !strings.HasPrefix(p, "/"):
		why = "is not absolute"
	case p == "/":
		why = "is the root"
	case path.Clean(p) != p:
		why = "is not canonical"
	case strings.ContainsRune(p, 0):
		why = "has a zero byte"
	default:
		return nil
	}
	return fmt.Errorf("%w: path %q %s", ErrInvalid, p, why)
}

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

// Different kinds of locks on one path do not exclude each other by themselves: each looks only at
// nodes of its own kind. So an attempt makes its node and then, before the grant, looks through the
// children of the directory for holders of other kinds. Of two that come at the same time at least
// one sees the other, because each makes its node first. Where there may be no node to see, the
// kind is in the data of the directory.

// use is what a directory is used for, as far as kinds of locks exclude each other.
type use uint8

const (
	useQueue       use = iota // numbered nodes: queueOf tells their kinds apart
	usePolicy                 // read-write lock with a policy
	useSimple                 // one node named lock, of another program
	usePermits                // semaphore with nodes in leases
	useBarePermits            // kazoo's semaphore: nodes named by an id alone
)

// useOf returns the use that the name of a directory's child reveals.
func useOf(name string) (use, bool) {
	switch {
	case name == recipe.SimpleName:
		return useSimple, true
	case name == recipe.PermitsName:
		return usePermits, true
	case recipe.IsPolicyNode(name):
		return usePolicy, true
	}
	if c, _, ok := recipe.ParseName(name); ok && c.Kind != recipe.RoleLease {
		return useQueue, true
	}
	if _, ok := recipe.ParseHex(name); ok {
		return useBarePermits, true
	}
	return 0, false
}

// alone fails if a client holds, or waits for, a lock of another kind on the path. names are the
// path's children.
func (c *Client) alone(ctx context.Context, e *epoch, path string, own use, names []string) error {
	for _, name := range names {
		if name[0] == '_' && own == useQueue {
			continue // most are contenders of the queue itself
		}
		u, ok := useOf(name)
		if !ok || u == own {
			continue
		}
		child, live := recipe.Join(path, name), false
		if u == usePermits {
			permits, err := e.children(ctx, child)
			if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
				return err
			}
			for _, p := range permits {
				cont, _, ok := recipe.ParseName(p)
				live = live || ok && cont.Kind == recipe.RoleLease
			}
		} else {
			st, err := e.conn.Exists(ctx, child)
			if err != nil && !errors.Is(err, zk.ErrNoAuth) {
				return err
			}
			live = st != nil && st.EphemeralOwner != 0 // a lasting node of this name is no contender
		}
		if live {
			return fmt.Errorf("%w: %s is of another kind of lock", ErrMixedLayout, child)
		}
	}
	return nil
}

// aloneNow is alone for an attempt that may not have listed the path since it made its node.
func (c *Client) aloneNow(ctx context.Context, e *epoch, path string, own use, listed *zk.Names) error {
	if listed == nil {
		names, err := e.conn.Names(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		listed = &names
	}
	return c.alone(ctx, e, path, own, listed.List())
}
