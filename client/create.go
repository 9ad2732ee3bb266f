package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
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
// session ends it returns at once; what f makes all the same is undone.
func deliver[T any](ctx context.Context, c *Client, e *epoch, f func(bg context.Context) (T, error), undo func(T)) (T, error) {
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
		} else if err == nil {
			undo(v)
		}
	})
	refuse := func(err error) (T, error) {
		if !delivery.CompareAndSwap(deliveryOpen, deliveryRefused) {
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
	return deliver(ctx, c, e, func(bg context.Context) ([]created, error) {
		return c.createNodes(bg, e, acl, nodes)
	}, func(made []created) {
		for _, n := range made {
			c.reap(e, n.path())
		}
	})
}

// createNodes is the detached part. One id per node is used however often the
// request is repeated: two creations with one id are recognised as one.
func (c *Client) createNodes(ctx context.Context, e *epoch, acl []zk.ACL, nodes []newNode) ([]created, error) {
	ids := make([]nodeID, len(nodes))
	for i := range ids {
		ids[i] = newNodeID(e.sid)
	}
	for n := 1; ; {
		made, err := c.createOnce(ctx, e, acl, nodes, ids)
		switch {
		case err == nil && e.ended():
			// Made in the next session, or gone with this one.
			c.reapIDs(e, nodes, ids)
			return nil, ErrSessionExpired
		case err == nil:
			return made, nil
		case errors.Is(err, zk.ErrNoNode):
			// A container may be gone again by the next attempt, any number of times.
			for _, n := range nodes {
				if err := c.ensureFor(ctx, e, n, acl); err != nil {
					return nil, err
				}
			}
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

// createOnce sends the request once.
func (c *Client) createOnce(ctx context.Context, e *epoch, acl []zk.ACL, nodes []newNode, ids []nodeID) ([]created, error) {
	ops := make([]any, len(nodes))
	for i, n := range nodes {
		flags := int32(zk.FlagEphemeral)
		if n.sequential {
			flags = zk.FlagEphemeralSequential
		}
		own := acl
		if n.acl != nil {
			own = n.acl
		}
		ops[i] = &zk.CreateRequest{Path: join(n.dir, n.name(ids[i])), Data: n.data(ids[i]), Acl: own, Flags: flags}
	}
	if len(ops) == 1 {
		r := ops[0].(*zk.CreateRequest)
		p, err := c.create(ctx, e, r.Path, r.Data, r.Flags, r.Acl)
		if err != nil {
			return nil, err
		}
		return []created{{id: ids[0], dir: nodes[0].dir, name: baseName(p), full: p}}, nil
	}
	res, err := c.multi(ctx, e, ops...)
	if err != nil {
		return nil, err
	}
	made := make([]created, len(nodes))
	for i := range made {
		made[i] = created{id: ids[i], dir: nodes[i].dir, name: baseName(res[i].String)}
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
		made = append(made, created{id: ids[i], dir: n.dir, name: found[0]})
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
		if e.ended() {
			c.reapStray(n.dir, ids[i])
		} else {
			c.reapID(e, n.dir, ids[i])
		}
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
		_, err := read(ctx, c, e, func() (string, error) { return c.conn.Create(c.full(n.dir), []byte{}, zk.FlagPersistent, acl) })
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
