package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// rw1Acquire competes for a read-write lock with a policy. The decisions are
// taken in rw1_decide.go; this file reads what they need and carries them out.
func (c *Client) rw1Acquire(ctx context.Context, a *attempt) (*hold, error) {
	for {
		e, err := c.epoch(ctx)
		if err != nil {
			return nil, err
		}
		w := &rw1Waiter{waiter: waiter{c: c, e: e, a: a}, id: newNodeID(e.sid), dir: rw1Dir{c: c, e: e, path: a.dir, acl: a.cfg.acl}}
		h, err := w.compete(ctx)
		if err == nil {
			return h, nil
		}
		w.withdraw(ctx, errors.Is(err, ErrNotAcquired))
		var re *requeueError
		switch {
		case errors.As(err, &re):
			if err := a.requeued(re.why); err != nil {
				return nil, err
			}
		case errors.Is(err, errSlipped):
		case errors.Is(err, ErrSessionExpired) && !a.cfg.noRequeue:
		default:
			return nil, err
		}
	}
}

// rw1Waiter is one attempt in one session.
type rw1Waiter struct {
	waiter
	id     nodeID
	queued bool
	node   rw1Node // the queue node, if queued
	dir    rw1Dir

	entered bool // the queue node is new, and the record was read just before

	closed bool // the gate was closed for this attempt at some time
	delay  rw1Delay
	clock  rw1Waits
}

func (w *rw1Waiter) reads() bool { return w.a.mode == fence.Shared }

// compete decides and acts until the lock is held.
func (w *rw1Waiter) compete(ctx context.Context) (*hold, error) {
	if !w.reads() && !w.a.try {
		// A writer needs its place before anything can be decided.
		if err := w.dir.read(ctx, w.a.cfg); err != nil {
			return nil, w.lostSession(err)
		}
		if err := w.enqueue(ctx); err != nil {
			return nil, w.lostSession(err)
		}
	}
	for {
		if err := w.look(ctx); err != nil {
			return nil, w.lostSession(err)
		}
		step, err := w.decide(ctx)
		if err != nil {
			return nil, w.lostSession(err)
		}
		h, err := w.act(ctx, step)
		if h != nil || err != nil {
			return h, w.lostSession(err)
		}
	}
}

// look reads the record and then the list, in this order. A record read a moment
// ago, and one in which the gate is closed for this attempt, is not read again: if
// it has changed, what is decided will fail, and the list is newer than it anyway.
func (w *rw1Waiter) look(ctx context.Context) error {
	again := w.entered
	w.entered = false
	if w.dir.fresh && (again || w.dir.rec.gate() == (rw1Gate{w.id, rw1GateWrite})) {
		return w.dir.list(ctx)
	}
	if err := w.dir.read(ctx, w.a.cfg); err != nil {
		return err
	}
	return w.dir.list(ctx)
}

// decide asks the decision functions.
func (w *rw1Waiter) decide(ctx context.Context) (rw1Step, error) {
	v := w.dir.view(w.a.cfg.policy)
	if v.policy == PolicyReader {
		var err error
		if v.overdue, err = w.overdue(ctx, v); err != nil {
			return rw1Step{}, err
		}
	}
	var step rw1Step
	switch {
	case w.reads():
		step = rw1Read(v, w.id, w.queued)
	case w.queued:
		step = rw1Write(v, w.id)
	case w.a.try && !rw1Free(v):
		return rw1Step{}, ErrNotAcquired
	default:
		step = rw1Step{do: rw1Enqueue}
	}
	if w.a.try && step.do != rw1Grant && step.do != rw1Close && (step.do != rw1Enqueue || w.reads()) {
		return rw1Step{}, ErrNotAcquired
	}
	return step, nil
}

// act carries a decision out. It returns a hold, an error, or neither if there is
// to be another look.
func (w *rw1Waiter) act(ctx context.Context, step rw1Step) (*hold, error) {
	if step.do == rw1Grant || step.do == rw1Close {
		if wait, err := w.lockDelay(ctx); wait || err != nil {
			return nil, err
		}
		if !w.e.valid() {
			return nil, w.e.awaitValid(ctx)
		}
	}
	switch step.do {
	case rw1Enqueue:
		return nil, w.enqueue(ctx)
	case rw1Wait:
		return nil, w.awaitStep(ctx, step)
	case rw1Close:
		w.closed = true
		return nil, w.dir.setGate(ctx, rw1Gate{w.id, rw1GateWrite})
	case rw1Reopen:
		return nil, w.dir.setGate(ctx, rw1Gate{})
	case rw1Grant:
		return w.grant(ctx)
	default: // rw1Removed
		return nil, w.displaced()
	}
}

// enqueue takes a place in the queue.
func (w *rw1Waiter) enqueue(ctx context.Context) error {
	kind := rw1QueueWrite
	if w.reads() {
		kind = rw1QueueRead
	}
	made, err := w.c.protectedCreate(ctx, w.e, w.a.cfg.acl, newNode{
		dir: w.a.dir, sequential: true, data: w.a.data,
		name: func(id nodeID) string { return rw1Node{id: id, kind: kind}.name(false) },
	})
	if err != nil {
		return err
	}
	w.own, w.queued, w.id = made[0], true, made[0].id
	w.node, _ = parseRW1(w.own.name)
	w.c.count.enqueued.Add(1)
	w.c.tell(&w.a.cfg.hooks, pickEnqueue, LockEvent{Path: w.a.path, Node: w.own.path(), Mode: w.a.mode, Waited: time.Since(w.a.start)})
	if err := w.lookAtOwn(ctx); err != nil {
		return err
	}
	w.entered = true
	if w.a.cfg.policy != PolicyReader {
		return nil
	}
	// Only this policy needs to know since when somebody waits.
	st, err := w.c.exists(ctx, w.e, w.own.path())
	if err == nil && st != nil {
		w.c.rw1.observe(st.Ctime)
		w.clock.put(w.node, st.Ctime)
	}
	return err
}

// grant makes the hold node and returns the hold.
func (w *rw1Waiter) grant(ctx context.Context) (*hold, error) {
	g := rw1Granted{ops: rw1WriteGrant(w.id), node: rw1Node{id: w.id, kind: rw1HoldWrite}}
	if w.reads() {
		g = rw1Granted{ops: rw1ReadGrant(w.id, w.queued), node: rw1Node{id: w.id, kind: rw1HoldRead}}
	}
	g.queue, g.data = w.node, rw1HoldData(w.a, w.id)
	st, err := w.dir.grant(ctx, g)
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		w.dir.fresh = false
		return nil, nil
	case errors.Is(err, zk.ErrNoNode) && w.queued:
		return nil, w.displaced()
	case errors.Is(err, zk.ErrNoNode): // the directory was removed
		w.dir.fresh = false
		return nil, nil
	case err != nil:
		return nil, err
	}
	nodes := []heldNode{{path: join(w.a.dir, g.node.name(true)), id: w.id}}
	if st.EphemeralOwner != w.e.sid {
		w.c.removeSlipped(nodes[0].path, st.EphemeralOwner)
		return nil, errSlipped
	}
	if ok, err := w.dir.same(ctx); !ok {
		w.c.reap(w.e, nodes[0].path)
		if err != nil {
			return nil, err // the place is still known, and given up with the attempt
		}
		// The directory was removed and made anew between look and grant; the
		// version that was checked is another record's. The next place has another
		// id, so this one goes now.
		w.withdraw(ctx, false)
		w.dir.fresh, w.closed = false, false
		w.id, w.queued = newNodeID(w.e.sid), false
		return nil, nil
	}
	w.c.rw1.observe(st.Ctime)
	ops := &rw1Ops{dir: w.dir}
	if w.queued && !w.reads() {
		nodes = append(nodes, heldNode{path: w.own.path(), id: w.id, seq: w.node.seq})
	}
	h := newHold(w.a, w.e, ops, w.a.mode, fence.Token(st.Czxid), nodes...)
	h.marked = w.a.cfg.lockDelay > 0 && !w.reads()
	return h, nil
}

// withdraw removes what the attempt left. For a try it waits until that is done.
func (w *rw1Waiter) withdraw(ctx context.Context, wait bool) {
	if w.e.ended() {
		return
	}
	var done []<-chan struct{}
	if w.queued {
		done = append(done, w.c.reap(w.e, w.own.path()))
	}
	if w.closed && w.a.cfg.lockDelay > 0 {
		// Without its owner the mark would pass for that of a holder that died.
		done = append(done, w.dir.reopen(rw1Gate{w.id, rw1GateWrite}))
	}
	for _, ch := range done {
		if !wait {
			return
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return
		}
	}
}

// removeSlipped removes a node that came to be in another session than the one it
// was meant for. Only that session's reaper lives as long as the node.
func (c *Client) removeSlipped(path string, sid int64) {
	c.detached(func(ctx context.Context) {
		if e, err := c.epoch(ctx); err == nil && e.sid == sid {
			c.reap(e, path)
		}
	})
}

// rw1Free reports whether a writer that comes now would not have to wait.
func rw1Free(v *rw1View) bool {
	return len(v.nodes) == 0
}

// rw1HoldData is the content of a hold node. Its making is the grant, so it bears
// the stamp of one.
func rw1HoldData(a *attempt, id nodeID) []byte {
	if a.cfg.rawData {
		return a.cfg.data
	}
	o := a.owner(id)
	o.Held = true
	return ownerData(o)
}

// errPolicy explains a refusal.
func errPolicy(dir string, have, want string) error {
	return fmt.Errorf("%w: %s is %q, not %q", ErrPolicyMismatch, dir, have, want)
}
