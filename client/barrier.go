package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Barrier blocks its waiters while it is closed. It is closed while its node exists, no matter
// which client made the node, and stays closed when that client goes away.
type Barrier struct {
	c    *Client
	path string
}

// Barrier returns the barrier on path.
func (c *Client) Barrier(path string) *Barrier { return &Barrier{c: c, path: path} }

// Close closes the barrier. It does nothing if it is closed.
func (b *Barrier) Close(ctx context.Context) error {
	return b.c.steadily(ctx, b.path, func(e *epoch) error {
		return b.c.ensureFor(ctx, e, b.path, true, zk.WorldACL(zk.PermAll))
	})
}

// Open opens the barrier. It does nothing if it is open.
func (b *Barrier) Open(ctx context.Context) error {
	return b.c.steadily(ctx, b.path, func(e *epoch) error {
		return e.erase(ctx, b.path)
	})
}

// Wait waits until the barrier is open or ctx ends. It sees every Close that was complete before the
// call.
func (b *Barrier) Wait(ctx context.Context) error {
	var synced *epoch
	return b.c.steadily(ctx, b.path, func(e *epoch) error {
		s, err := e.see(ctx, b.path, true)
		if errors.Is(err, zk.ErrNoNode) {
			if synced == e {
				return nil
			}
			err := e.conn.Sync(ctx, b.path)
			if err == nil {
				synced = e
			}
			return cmp.Or(err, errAgain)
		}
		if err != nil {
			return err
		}
		if err := e.restAwhile(ctx, s.w.Fired()); err != nil {
			return err
		}
		return errAgain
	})
}

// DoubleBarrier lets n members begin together and end together. A member whose
// session ends counts as having left.
type DoubleBarrier struct {
	c    *Client
	path string
	n    int
}

// DoubleBarrier returns the double barrier of n members on path.
func (c *Client) DoubleBarrier(path string, n int) *DoubleBarrier {
	return &DoubleBarrier{c: c, path: path, n: n}
}

// readyName is the node that marks that all members have entered.
const readyName = "ready"

// Member is a member of a double barrier that has entered.
type Member struct {
	b    *DoubleBarrier
	e    *epoch
	node created
}

// Enter waits until n members have entered or ctx ends. A barrier that is already open lets in up
// to n members late.
func (b *DoubleBarrier) Enter(ctx context.Context) (*Member, error) {
	if b.n < 1 {
		return nil, errorAt(b.path, fmt.Errorf("%w: %d members", ErrInvalid, b.n))
	}
	var m *Member
	err := b.c.steadily(ctx, b.path, func(e *epoch) error {
		var err error
		m, err = b.enter(ctx, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (b *DoubleBarrier) enter(ctx context.Context, e *epoch) (*Member, error) {
	c := b.c
	a := attempt{c: c, cfg: c.locks.with(nil), task: taskOf(ctx)}
	id := newNodeID(e.sid)
	made, _, err := c.create(ctx, e, newNode{Create: zk.Create{
		Path: recipe.Join(b.path, id.UUID()), Data: a.data(), ACL: a.cfg.acl, Mode: zk.Ephemeral,
	}})
	if err != nil {
		return nil, err
	}
	m := &Member{b: b, e: e, node: made[0]}
	if err := again(ctx, func() error { return b.gather(ctx, e, m) }); err != nil {
		c.reap(e, m.node.path)
		return nil, err
	}
	return m, nil
}

// gather checks whether all members are there. If not, it waits for a change and returns errAgain.
func (b *DoubleBarrier) gather(ctx context.Context, e *epoch, m *Member) error {
	ready := recipe.Join(b.path, readyName)
	// The watch on the missing node comes first: its creation cannot be missed.
	st, w, err := e.conn.ExistsW(ctx, ready)
	if err != nil {
		return err
	}
	members, err := b.members(ctx, e)
	if err != nil {
		return err
	}
	if !slices.Contains(members, m.node.name) {
		return ErrSessionExpired // another client removed it: enter again
	}
	among, open, err := b.place(ctx, e, m, members, st)
	switch {
	case err != nil:
		return err
	case among && open:
		return nil
	case among && len(members) >= b.n:
		return b.markReady(ctx, e)
	}
	if err := e.restAwhile(ctx, w.Fired()); err != nil {
		return err
	}
	if ev := w.Event().Type; among && (ev == zk.EventCreated || ev == zk.EventDataChanged) {
		return nil // seen once is enough: the first to leave may have removed it again
	}
	return errAgain
}

// markReady makes the node that says that all members have entered, or changes one of an earlier round.
func (b *DoubleBarrier) markReady(ctx context.Context, e *epoch) error {
	ready := recipe.Join(b.path, readyName)
	_, err := e.conn.Create(ctx, zk.Create{Path: ready, Data: []byte{}, Mode: zk.Ephemeral,
		ACL: zk.WorldACL(zk.PermAll)})
	if errors.Is(err, zk.ErrNodeExists) {
		_, err = e.conn.Set(ctx, ready, []byte{}, -1)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return errAgain
	}
	return err
}

// place reports whether a member is one of the first n, and whether the barrier was opened while one of
// the present members was there: otherwise the mark is of an earlier round, and a member of that round
// which did not wait for the end still has its session.
func (b *DoubleBarrier) place(
	ctx context.Context, e *epoch, m *Member, members []string, mark *zk.Stat,
) (among, open bool, err error) {
	own, before := m.node.stat.Czxid, 0
	open = mark != nil && own < mark.Mzxid
	if len(members) <= b.n && (open || mark == nil) {
		return true, open, nil
	}
	for _, name := range members {
		st, err := e.conn.Exists(ctx, recipe.Join(b.path, name))
		switch {
		case err != nil:
			return false, false, err
		case st == nil:
			continue
		case st.Czxid < own:
			before++
		}
		open = open || mark != nil && st.Czxid < mark.Mzxid
	}
	return before < b.n, open, nil
}

// members lists the members' names in order.
func (b *DoubleBarrier) members(ctx context.Context, e *epoch) ([]string, error) {
	names, err := e.children(ctx, b.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == readyName })
	slices.Sort(names)
	return names, err
}

// Leave waits until all members leave or ctx ends. In any case the member's node is gone
// afterwards, or goes as soon as there is a connection.
func (m *Member) Leave(ctx context.Context) error {
	c, e := m.b.c, m.e
	ctx, end := c.during(ctx)
	defer end()
	err := again(ctx, func() error { return m.leave(ctx) })
	if err == nil || errors.Is(err, ErrSessionExpired) {
		return nil // the node is gone, with the session if not before
	}
	c.reap(e, m.node.path)
	return errorAt(m.b.path, publicErr(ctx, err))
}

// leave does one step. The lowest member waits for the highest; the others remove their nodes and
// wait for the lowest.
func (m *Member) leave(ctx context.Context) error {
	e, b := m.e, m.b
	members, err := b.members(ctx, e)
	if err != nil {
		return err
	}
	own := slices.Contains(members, m.node.name)
	if len(members) == 0 || own && len(members) == 1 {
		if err := e.erase(ctx, m.node.path); err != nil {
			return err
		}
		return e.erase(ctx, recipe.Join(b.path, readyName))
	}
	if own {
		// The member that made the mark may have died while another one had no connection to see it.
		st, err := e.conn.Exists(ctx, recipe.Join(b.path, readyName))
		if err == nil && st == nil {
			err = b.markReady(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	other := members[0]
	switch {
	case members[0] == m.node.name:
		other = members[len(members)-1]
	case own:
		if err := e.erase(ctx, m.node.path); err != nil {
			return err
		}
	}
	_, w, err := e.conn.GetW(ctx, recipe.Join(b.path, other))
	if err == nil {
		err = e.restAwhile(ctx, w.Fired())
	}
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		return errAgain
	}
	return err
}
