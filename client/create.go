package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// newNode is a node to be created. Its name and data may depend on the id.
type newNode struct {
	dir        string
	name       func(id nodeID) string // without the number
	data       func(id nodeID) []byte
	sequential bool
	acl        []zk.ACL // instead of the one for all, if not nil
	lasting    bool     // the directory must not be removed when it is empty
}

// created is a node that exists, or did when its creation was seen.
type created struct {
	id   nodeID
	dir  string
	name string
	full string // dir and name, if known already
	stat zk.Stat
	data []byte
}

func (n created) path() string {
	if n.full != "" {
		return n.full
	}
	return join(n.dir, n.name)
}

// Who takes what detached work brings.
const (
	deliveryOpen int32 = iota
	deliveryDone
	deliveryRefused
)

// deliver runs f, which makes something on the server, to its end. When ctx or the
// session ends it returns at once; what f makes all the same, in dirs, is undone.
func deliver[T any](ctx context.Context, c *Client, e *epoch, dirs []string, f func(bg context.Context) (T, error), undo func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var delivery atomic.Int32
	ch := make(chan result, 1)
	c.detached(func(bg context.Context) {
		v, err := f(bg)
		if delivery.CompareAndSwap(deliveryOpen, deliveryDone) {
			ch <- result{v, err}
			return
		}
		if err == nil {
			undo(v)
		}
		c.crowd.gone(dirs...)
	})
	refuse := func(err error) (T, error) {
		c.crowd.abandon(dirs...) // until it is known what came of it
		if !delivery.CompareAndSwap(deliveryOpen, deliveryRefused) {
			defer c.crowd.gone(dirs...)
			if r := <-ch; r.err == nil {
				undo(r.v)
			}
		}
		var none T
		return none, err
	}
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		return refuse(ctxErr(ctx))
	case <-e.gone:
		return refuse(ErrSessionExpired)
	case <-c.drain:
		return refuse(ErrClosed)
	}
}

// protectedCreate creates ephemeral nodes, all or none, so that no lost reply
// leaves one behind or makes a second one. When ctx ends it returns at once; what
// is under way then is finished and cleaned up in the background.
func (c *Client) protectedCreate(ctx context.Context, e *epoch, acl []zk.ACL, nodes ...newNode) ([]created, error) {
	dirs := make([]string, len(nodes))
	for i, n := range nodes {
		dirs[i] = n.dir
	}
	if err := c.room(ctx, e, dirs...); err != nil {
		return nil, err
	}
	return c.deliverNodes(ctx, e, acl, dirs, nodes, newIDs(e, len(nodes)), nil)
}

func newIDs(e *epoch, n int) []nodeID {
	ids := make([]nodeID, n)
	for i := range ids {
		ids[i] = newNodeID(e.sid)
	}
	return ids
}

// deliverNodes goes on after a first request that ended with err, if there was one.
func (c *Client) deliverNodes(ctx context.Context, e *epoch, acl []zk.ACL, dirs []string, nodes []newNode, ids []nodeID, err error) ([]created, error) {
	return deliver(ctx, c, e, dirs, func(bg context.Context) ([]created, error) {
		return c.createNodes(bg, e, acl, nodes, ids, err)
	}, func(made []created) {
		for _, n := range made {
			c.reap(e, n.path())
		}
	})
}

// enqueue is protectedCreate for one node, which also lists its directory in the
// same flight; the list is nil if it has to be asked for again.
func (c *Client) enqueue(ctx context.Context, e *epoch, acl []zk.ACL, n newNode) (created, *zk.Names, error) {
	if err := c.room(ctx, e, n.dir); err != nil {
		return created{}, nil, err
	}
	ids := newIDs(e, 1)
	op := createOp(acl, n, ids[0])
	p := e.conn.Pipe()
	made, list := p.Create(op), p.Names(n.dir)
	p.Send()
	refuse := func(err error) (created, *zk.Names, error) {
		c.crowd.abandon(n.dir) // until it is known what came of it
		c.detached(func(bg context.Context) {
			if m, err := made.Wait(bg); err == nil {
				c.reap(e, m.Path)
			} else if isAmbiguous(err) {
				c.reapID(e, n.dir, ids[0])
			}
			c.crowd.gone(n.dir)
		})
		return created{}, nil, err
	}
	select {
	case <-made.Done():
	case <-ctx.Done():
		return refuse(ctxErr(ctx))
	case <-e.gone:
		return created{}, nil, ErrSessionExpired
	case <-c.drain:
		return refuse(ErrClosed)
	}
	m, err := made.Wait(ctx)
	if err != nil {
		// Its directory is missing, or nobody knows: from here on step by step.
		if !errors.Is(err, zk.ErrNoNode) && !isAmbiguous(err) {
			return created{}, nil, err
		}
		all, err := c.deliverNodes(ctx, e, acl, []string{n.dir}, []newNode{n}, ids, err)
		if err != nil {
			return created{}, nil, err
		}
		return all[0], nil, nil
	}
	own := created{id: ids[0], dir: n.dir, name: baseName(m.Path), full: m.Path, stat: m.Stat, data: op.Data}
	names, err := await(ctx, c, list)
	if err != nil {
		return own, nil, nil // the next look tells why
	}
	return own, &names, nil
}

// createNodes is the detached part. One id per node is used however often the
// request is repeated: two creations with one id are recognised as one. An error
// of a request that was sent before is taken up.
func (c *Client) createNodes(ctx context.Context, e *epoch, acl []zk.ACL, nodes []newNode, ids []nodeID, err error) ([]created, error) {
	for n := 1; ; {
		var made []created
		if err == nil {
			made, err = c.createOnce(ctx, e, acl, nodes, ids)
		}
		switch {
		case err == nil:
			return made, nil
		case errors.Is(err, zk.ErrNoNode):
			// A container may be gone again by the next attempt, any number of times.
			for _, n := range nodes {
				if err := c.ensureFor(ctx, e, n, acl); err != nil {
					return nil, err
				}
			}
			err = nil
			continue
		case !isAmbiguous(err):
			return nil, err
		}
		made, err = c.recover(ctx, e, nodes, ids)
		if err != nil || made != nil {
			return made, err
		}
		// It did not happen. A server that refuses without closing the connection
		// must not be asked in a tight loop.
		if n > 1 {
			if err := pause(ctx, backoff(n-1, 10*time.Millisecond, time.Second)); err != nil {
				return nil, err
			}
		}
		n++
	}
}

// createOp is the request for a node.
func createOp(acl []zk.ACL, n newNode, id nodeID) zk.Create {
	mode := zk.Ephemeral
	if n.sequential {
		mode = zk.EphemeralSequential
	}
	if n.acl != nil {
		acl = n.acl
	}
	return zk.Create{Path: join(n.dir, n.name(id)), Data: n.data(id), ACL: acl, Mode: mode}
}

// createOnce sends the request once.
func (c *Client) createOnce(ctx context.Context, e *epoch, acl []zk.ACL, nodes []newNode, ids []nodeID) ([]created, error) {
	ops := make([]zk.Op, len(nodes))
	for i, n := range nodes {
		ops[i] = createOp(acl, n, ids[i])
	}
	if len(ops) == 1 {
		made, err := c.create(ctx, e, ops[0].(zk.Create))
		if err != nil {
			return nil, err
		}
		return []created{{id: ids[0], dir: nodes[0].dir, name: baseName(made.Path), full: made.Path, stat: made.Stat, data: ops[0].(zk.Create).Data}}, nil
	}
	res, err := c.multi(ctx, e, ops...)
	if err != nil {
		return nil, err
	}
	made := make([]created, len(nodes))
	for i := range made {
		made[i] = created{id: ids[i], dir: nodes[i].dir, name: baseName(res[i].Path), full: res[i].Path, stat: res[i].Stat, data: ops[i].(zk.Create).Data}
	}
	return made, nil
}

// recover finds out whether a creation happened whose reply was lost: nil, nil if
// it did not. A transaction happened wholly or not at all.
func (c *Client) recover(ctx context.Context, e *epoch, nodes []newNode, ids []nodeID) ([]created, error) {
	var made []created
	lists := map[string][]string{}
	for i, n := range nodes {
		names, ok := lists[n.dir]
		if !ok {
			var err error
			names, err = c.relist(ctx, e, n.dir)
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			if err != nil {
				// Whatever is there dies with the session, or is found by the reaper.
				c.reapIDs(e, nodes, ids)
				return nil, err
			}
			lists[n.dir] = names
		}
		found := bearing(names, ids[i])
		if len(found) == 0 {
			continue
		}
		slices.SortFunc(found, compareNames)
		for _, extra := range found[1:] {
			c.reap(e, join(n.dir, extra))
		}
		st, err := c.exists(ctx, e, join(n.dir, found[0]))
		if err != nil {
			c.reapIDs(e, nodes, ids)
			return nil, err
		}
		if st == nil || st.EphemeralOwner != e.sid {
			continue // it is gone again, or somebody else's
		}
		made = append(made, created{id: ids[i], dir: n.dir, name: found[0], stat: *st, data: n.data(ids[i])})
	}
	if len(made) < len(nodes) {
		for _, n := range made { // somebody removed the others meanwhile
			c.reap(e, n.path())
		}
		return nil, nil
	}
	c.count.recovered.Add(1)
	return made, nil
}

// reapIDs removes the nodes of an attempt that is given up, wherever they are.
func (c *Client) reapIDs(e *epoch, nodes []newNode, ids []nodeID) {
	for i, n := range nodes {
		c.reapID(e, n.dir, ids[i])
	}
}

// compareNames orders names of one attempt: by number if they have one.
func compareNames(a, b string) int {
	ca, _, okA := parseName(a)
	cb, _, okB := parseName(b)
	if okA && okB {
		return compareContenders(ca, cb)
	}
	return strings.Compare(a, b)
}

// ensureFor makes a node's directory. The mark of a lock delay is in the
// directory's data and must outlive the last contender.
func (c *Client) ensureFor(ctx context.Context, e *epoch, n newNode, acl []zk.ACL) error {
	if !n.lasting {
		return c.ensure(ctx, e, n.dir, acl)
	}
	for {
		_, err := again(ctx, func() (zk.Created, error) {
			return c.create(ctx, e, zk.Create{Path: n.dir, Data: []byte{}, Mode: zk.Persistent, ACL: acl})
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if err := c.ensure(ctx, e, parentOf(n.dir), acl); err != nil {
			return err
		}
	}
}
