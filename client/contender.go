package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// queue is a recipe in which every contender has a numbered node and waits for
// one node before it.
type queue struct {
	layout Layout
	kind   nodeKind
	rw     bool // reads and writes contend
}

// blocker returns whom the contender at index i waits for, nil for nobody: a
// reader for the last write before it, everyone else for the last node before it.
// Waiting for one node only is what keeps a release from waking a herd.
func (q queue) blocker(queue []contender, i int) *contender {
	for j := i - 1; j >= 0; j-- {
		if q.kind != kindRead || queue[j].kind.exclusive() {
			return &queue[j]
		}
	}
	return nil
}

// holds reports whether the contender at index i holds the lock, going by the queue alone.
func holds(queue []contender, i int) bool {
	if queue[i].kind.exclusive() {
		return i == 0
	}
	for j := 0; j < i; j++ {
		if queue[j].kind.exclusive() {
			return false
		}
	}
	return true
}

// run competes for a hold, queueing again as often as the place is lost.
func (q queue) run(ctx context.Context, a *attempt) (*hold, error) {
	for {
		e, err := a.c.epoch(ctx)
		if err != nil {
			return nil, err
		}
		h, err := q.once(ctx, e, a)
		var re *requeueError
		switch {
		case errors.As(err, &re):
			if err := a.requeued(re.why); err != nil {
				return nil, err
			}
		case errors.Is(err, errSlipped):
		case errors.Is(err, ErrSessionExpired):
			// The session ended before there was a place to lose.
			if a.cfg.noRequeue {
				return nil, err
			}
		default:
			return h, err
		}
	}
}

// once takes one place in the queue and waits there.
func (q queue) once(ctx context.Context, e *epoch, a *attempt) (*hold, error) {
	if a.try {
		if err := q.precheck(ctx, e, a); err != nil {
			return nil, err
		}
	}
	made, err := a.c.protectedCreate(ctx, e, a.cfg.acl, newNode{
		dir: a.dir, sequential: true, data: a.data, lasting: a.cfg.lockDelay > 0,
		name: func(id nodeID) string { return nodeName(q.layout, q.kind, id, a.c.owner.host) },
	})
	if err != nil {
		return nil, err
	}
	w := &waiter{c: a.c, e: e, a: a, q: q, own: made[0]}
	a.c.count.enqueued.Add(1)
	a.c.tell(&a.cfg.hooks, pickEnqueue, LockEvent{Path: a.path, Node: w.own.path(), Mode: a.mode, Waited: time.Since(a.start)})
	h, err := w.wait(ctx)
	if err == nil {
		return h, nil
	}
	if errors.Is(err, errSlipped) {
		a.c.reapStray(a.dir, w.own.id) // it is not of this session, and may outlive it
		return nil, err
	}
	gone := a.c.reap(e, w.own.path())
	if errors.Is(err, ErrNotAcquired) {
		// A try should leave nothing behind that others would have to wait for.
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
	return nil, err
}

// precheck is a try's look before it leaps: if somebody is ahead, nothing is written.
func (q queue) precheck(ctx context.Context, e *epoch, a *attempt) error {
	if a.cfg.freshTry {
		if err := a.c.sync(ctx, e, a.dir); err != nil {
			return err
		}
	}
	names, _, err := a.c.children(ctx, e, a.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	queue, _, err := queueOf(q.layout, names, q.rw)
	if err != nil {
		return err
	}
	if q.blocker(queue, len(queue)) != nil {
		return ErrNotAcquired
	}
	return nil
}

// waiter is a contender with its node in the queue.
type waiter struct {
	c    *Client
	e    *epoch
	a    *attempt
	q    queue
	own  created
	ownW *watch
	czx  int64
	data []byte // of the own node
	ver  int32

	waited bool // had to wait for somebody
	brk    breaker
}

// wait is the queue recipe: list, find whom to wait for, wait for that one, list
// again. An event alone never grants anything.
func (w *waiter) wait(ctx context.Context) (*hold, error) {
	names, err := w.enter(ctx)
	if err != nil {
		return nil, err
	}
	for {
		queue, _, err := queueOf(w.q.layout, names, w.q.rw)
		if err != nil {
			return nil, err
		}
		i := indexOf(queue, w.own.name)
		if i < 0 {
			return nil, w.displaced()
		}
		p := w.q.blocker(queue, i)
		switch {
		case p != nil && w.a.try:
			return nil, ErrNotAcquired
		case p != nil:
			w.waited = true
			if err := w.await(ctx, *p, holds(queue, indexOf(queue, p.name))); err != nil {
				return nil, err
			}
		case !w.e.valid():
			if err := w.e.awaitValid(ctx); err != nil {
				return nil, w.lostSession(err)
			}
		default:
			return w.first(ctx, names)
		}
		if names, err = w.list(ctx); err != nil {
			return nil, err
		}
	}
}

// enter lists the queue and looks at the own node at the same time.
func (w *waiter) enter(ctx context.Context) ([]string, error) {
	type result struct {
		names []string
		err   error
	}
	ch := make(chan result, 1)
	go func() {
		names, err := w.list(ctx)
		ch <- result{names, err}
	}()
	err := w.lookAtOwn(ctx)
	r := <-ch
	if err != nil {
		return nil, err
	}
	return r.names, r.err
}

func (w *waiter) list(ctx context.Context) ([]string, error) {
	names, _, err := w.c.children(ctx, w.e, w.a.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, w.displaced()
	}
	return names, w.lostSession(err)
}

// lookAtOwn reads and watches the own node. It must be this session's: the node
// of a dying session may still be visible, and a request may slip from one
// session into the next.
func (w *waiter) lookAtOwn(ctx context.Context) error {
	data, st, ownW, err := w.c.getW(ctx, w.e, w.own.path())
	if errors.Is(err, zk.ErrNoAuth) {
		st, ownW, err = w.c.existsW(ctx, w.e, w.own.path())
		if err == nil && st == nil {
			err = zk.ErrNoNode
		}
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return w.displaced()
	case err != nil:
		return w.lostSession(err)
	case st.EphemeralOwner != w.e.sid:
		return errSlipped
	}
	w.ownW, w.czx, w.data, w.ver = ownW, st.Czxid, data, st.Version
	if r, ok := revocationIn(data); ok {
		w.c.opt.log.Info("waiter asked to leave", "path", w.a.path, "by", r.By, "reason", r.Reason)
		return &LostError{Path: w.a.path, Node: w.own.path(), Reason: Revoked}
	}
	return nil
}

// displaced says that the own node is gone.
func (w *waiter) displaced() error {
	if w.e.ended() {
		return &requeueError{ErrSessionExpired}
	}
	return &requeueError{ErrNodeRemoved}
}

// lostSession turns the end of the session into the loss of the place.
func (w *waiter) lostSession(err error) error {
	if errors.Is(err, ErrSessionExpired) {
		return &requeueError{ErrSessionExpired}
	}
	return err
}

// await waits until p may be gone. Only its deletion ends the wait: a change of
// its data or of the connection arms the watch again.
func (w *waiter) await(ctx context.Context, p contender, holder bool) error {
	path := join(w.a.dir, p.name)
	var safety <-chan time.Time
	if d := w.c.opt.safety; d > 0 {
		t := time.NewTicker(d/2 + rand.N(d))
		defer t.Stop()
		safety = t.C
	}
	defer w.brk.stop()
	for {
		d, pw, gone, err := w.watchNode(ctx, path)
		if gone || err != nil {
			return w.lostSession(err)
		}
		if holder && w.a.cfg.breakable {
			if err := w.brk.look(ctx, w, path, d); err != nil {
				return w.lostSession(err)
			}
		}
		for again := false; !again; {
			select {
			case <-pw.C():
				if pw.event() == zk.EventNodeDeleted {
					return nil
				}
				again = true
			case <-w.ownW.C():
				if err := w.lookAtOwn(ctx); err != nil {
					return err
				}
			case <-safety:
				st, err := w.c.exists(ctx, w.e, path)
				if errors.Is(err, zk.ErrNoAuth) {
					continue // the directory is watched
				}
				if err != nil || st == nil {
					return w.lostSession(err)
				}
			case <-w.brk.due():
				again = true
			case <-w.e.gone:
				return &requeueError{ErrSessionExpired}
			case <-ctx.Done():
				return ctxErr(ctx)
			case <-w.c.drain:
				return ErrClosed
			}
		}
	}
}

// blindCheck is how often a node is looked at whose events may not be told.
const blindCheck = time.Second

// watchNode watches somebody's node. getData is preferred: unlike exists it leaves
// no watch behind on a node that is absent. Where the node may not be read, exists
// is used; but servers that keep to themselves what may not be read do not tell of
// its deletion, so the watch fires by itself after a while. Where even exists is
// forbidden the directory is watched, which works but wakes more often.
func (w *waiter) watchNode(ctx context.Context, path string) (d nodeData, pw *watch, gone bool, err error) {
	d.data, d.stat, pw, err = w.c.getW(ctx, w.e, path)
	if errors.Is(err, zk.ErrNoAuth) {
		d.stat, pw, err = w.c.existsW(ctx, w.e, path)
		if err == nil && d.stat == nil {
			return d, nil, true, nil
		}
		if err == nil {
			time.AfterFunc(blindCheck/2+rand.N(blindCheck), func() { w.c.hub.fire(w.c.full(path), evReattached) })
		}
	}
	if errors.Is(err, zk.ErrNoAuth) {
		var names []string
		names, _, pw, err = w.c.childrenW(ctx, w.e, parentOf(path))
		if err == nil && !slices.Contains(names, baseName(path)) {
			return d, nil, true, nil
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return d, nil, true, nil
	}
	return d, pw, false, err
}

// first is reached when nobody is ahead.
func (w *waiter) first(ctx context.Context, names []string) (*hold, error) {
	marked := false
	if w.a.cfg.lockDelay > 0 {
		if err := w.lockDelay(ctx, names); err != nil {
			return nil, w.lostSession(err)
		}
		marked = w.q.kind.exclusive()
	}
	c, _, _ := parseName(w.own.name)
	h := newHold(w.a, w.e, queueOps{w.q, w.a.dir}, w.a.mode, fence.Token(w.czx),
		heldNode{path: w.own.path(), id: w.own.id, seq: c.seq, lock: w.a.path, w: w.ownW})
	h.marked = marked
	if w.waited {
		w.stamp(h)
	}
	if !w.e.valid() {
		// The delay or the stamp took too long; whether we are still first must
		// be seen again.
		return nil, &requeueError{ErrSessionExpired}
	}
	return h, nil
}

// stamp records the time of a grant that had to wait. Who may be broken must be
// stamped before it acts; for others it is information.
func (w *waiter) stamp(h *hold) {
	o, ok := parseOwner(w.data)
	if !ok || !w.a.cfg.heldSince && !o.Breakable {
		return
	}
	o.Held = true
	write := func(ctx context.Context) error {
		_, err := w.c.set(ctx, w.e, w.own.path(), ownerData(o), w.ver)
		return err
	}
	if o.Breakable {
		if err := write(h.life); err != nil {
			w.c.opt.log.Debug("grant not stamped", "node", w.own.path(), "err", err)
		}
		return
	}
	w.c.detached(func(ctx context.Context) { write(ctx) })
}
