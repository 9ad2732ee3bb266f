package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// SimpleMutex is the lock of the textbooks: one node that whoever creates it
// holds, and everyone else watching the directory. Each release wakes all who
// wait, and who gets the lock next is chance. It is here for comparison; use
// [Mutex].
type SimpleMutex struct {
	c    *Client
	path string
	cfg  *lockConfig
}

// SimpleMutex returns the simple lock on path.
func (c *Client) SimpleMutex(path string, opts ...LockOption) *SimpleMutex {
	return &SimpleMutex{c: c, path: path, cfg: newLockConfig(opts)}
}

const simpleName = "lock"

// Lock waits until the lock is granted or ctx ends.
func (m *SimpleMutex) Lock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.lock(ctx, false, opts)
}

// TryLock takes the lock if nobody has it, and returns ErrNotAcquired otherwise.
func (m *SimpleMutex) TryLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.lock(ctx, true, opts)
}

func (m *SimpleMutex) lock(ctx context.Context, try bool, opts []AcquireOption) (*Lease, error) {
	a := &attempt{path: m.path, dir: m.path, mode: fence.Exclusive, try: try, cfg: m.cfg}
	return m.c.acquire(ctx, a, opts, m.compete)
}

func (m *SimpleMutex) compete(ctx context.Context, a *attempt) (*hold, error) {
	for {
		e, err := m.c.epoch(ctx)
		if err != nil {
			return nil, err
		}
		h, err := m.once(ctx, e, a)
		if !errors.Is(err, ErrSessionExpired) || a.cfg.noRequeue {
			return h, err
		}
		if err := a.requeued(ErrSessionExpired); err != nil {
			return nil, err
		}
	}
}

// once tries and waits within one session.
func (m *SimpleMutex) once(ctx context.Context, e *epoch, a *attempt) (*hold, error) {
	c, node := m.c, join(m.path, simpleName)
	for {
		id := newNodeID(e.sid)
		_, err := deliver(ctx, c, e, func(bg context.Context) (struct{}, error) {
			return struct{}{}, m.create(bg, e, a, node, id)
		}, func(struct{}) { m.drop(e, node, id) })
		switch {
		case err == nil:
			st, w, err := c.existsW(ctx, e, node)
			switch {
			case err == nil && (st == nil || st.EphemeralOwner != e.sid):
				continue // removed by somebody already
			case err == nil && e.valid():
				return newHold(a, e, simpleOps{}, fence.Exclusive, fence.Token(st.Czxid), heldNode{path: node, id: id, czxid: st.Czxid, lock: m.path, w: w}), nil
			case err == nil:
				err = ErrSessionExpired
			}
			m.drop(e, node, id)
			return nil, err
		case !errors.Is(err, zk.ErrNodeExists):
			return nil, err
		case a.try:
			return nil, ErrNotAcquired
		}
		names, _, w, err := c.childrenW(ctx, e, m.path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		if len(names) > 0 {
			if err := c.awaitAny(ctx, e, w); err != nil {
				return nil, err
			}
		}
	}
}

// create makes the node. After a lost reply, the id in the data tells whether it
// is ours.
func (m *SimpleMutex) create(ctx context.Context, e *epoch, a *attempt, node string, id nodeID) error {
	c := m.c
	o := a.owner(id)
	o.ID = id.uuid()
	data := ownerData(o)
	for {
		_, err := c.create(ctx, e, node, data, zk.FlagEphemeral, a.cfg.acl)
		if errors.Is(err, zk.ErrNoNode) {
			if err := c.ensure(ctx, e, m.path, a.cfg.acl); err != nil {
				return err
			}
			continue
		}
		if err == nil || !isAmbiguous(err) {
			return err
		}
		if err := c.sync(ctx, e, m.path); err != nil {
			return err // of the session: the node went with it
		}
		if mine, err := m.isMine(ctx, e, node, id); mine || err != nil {
			return err
		}
	}
}

func (m *SimpleMutex) isMine(ctx context.Context, e *epoch, node string, id nodeID) (bool, error) {
	data, st, err := m.c.get(ctx, e, node)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o, _ := parseOwner(data)
	return o.ID == id.uuid() && st.EphemeralOwner == e.sid, nil
}

// drop removes the node if it is ours: its name is everyone's.
func (m *SimpleMutex) drop(e *epoch, node string, id nodeID) <-chan struct{} {
	return m.c.reapFunc(e, func(ctx context.Context) error { return deleteByID(ctx, m.c, e, node, id) })
}

// deleteByID deletes a node of a common name if its data bears the id.
func deleteByID(ctx context.Context, c *Client, e *epoch, node string, id nodeID) error {
	if err := c.sync(ctx, e, node); err != nil {
		return err
	}
	data, st, err := c.get(ctx, e, node)
	if err != nil {
		return err
	}
	if o, _ := parseOwner(data); o.ID != id.uuid() || st.EphemeralOwner != e.sid {
		return zk.ErrNoNode
	}
	// The version guards against a node that took its place since.
	return c.delete(ctx, e, node, st.Version)
}

type simpleOps struct{}

func (simpleOps) release(ctx context.Context, h *hold) error {
	n := h.nodesNow()[0]
	for i := 1; ; i++ {
		err := deleteByID(ctx, h.c, h.e, n.path, n.id)
		switch {
		case i > 1 && errors.Is(err, zk.ErrNoNode):
			return nil
		case isAmbiguous(err), errors.Is(err, zk.ErrBadVersion):
			continue // deleteByID waits for a connection
		}
		return err
	}
}

func (simpleOps) discard(h *hold) []<-chan struct{} {
	n := h.nodesNow()[0]
	m := &SimpleMutex{c: h.c, path: h.path}
	return []<-chan struct{}{m.drop(h.e, n.path, n.id)}
}

func (simpleOps) downgrade(context.Context, *hold) error {
	return fmt.Errorf("%w: a simple lock has no modes", ErrUnsupported)
}

func (simpleOps) upgrade(context.Context, *hold, bool) error {
	return fmt.Errorf("%w: a simple lock has no modes", ErrUnsupported)
}
