package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// rw1Dir is the directory of an rw1 lock as one contender has seen it last, and
// the transactions on it.
type rw1Dir struct {
	c    *Client
	e    *epoch
	path string
	acl  []zk.ACL

	fresh bool // rec and ver are what this contender knows to be there
	rec   rw1Record
	ver   int32
	czxid int64
	watch *watch // set with the read of the record
	nodes []rw1Node
}

// read reads the record, and makes directory and record if need be.
func (d *rw1Dir) read(ctx context.Context, cfg *lockConfig) error {
	for {
		data, st, w, err := d.c.getW(ctx, d.e, d.path)
		if errors.Is(err, zk.ErrNoNode) {
			if err := d.make(ctx, cfg); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		d.ver, d.czxid, d.watch = st.Version, st.Czxid, w
		if len(data) == 0 {
			d.rec = newRW1Record(cfg)
			if err := d.set(ctx, d.rec); err != nil {
				return err
			}
			continue // somebody else's record may have been first
		}
		rec, ok := parseRW1Record(data)
		if !ok {
			return fmt.Errorf("%w: the data of %s are not those of a lock with a policy", ErrMixedLayout, d.path)
		}
		if rec.Policy != cfg.policy.String() {
			return errPolicy(d.path, rec.Policy, cfg.policy.String())
		}
		d.rec, d.fresh = rec, true
		return nil
	}
}

// make makes the directory. With a lock delay it must not vanish when it is empty,
// because the mark of a dead holder would vanish with it.
func (d *rw1Dir) make(ctx context.Context, cfg *lockConfig) error {
	if cfg.lockDelay == 0 {
		return d.c.ensure(ctx, d.e, d.path, d.acl)
	}
	if parent := parentOf(d.path); parent != "/" {
		if err := d.c.ensure(ctx, d.e, parent, d.acl); err != nil {
			return err
		}
	}
	_, err := d.c.create(ctx, d.e, d.path, []byte{}, zk.FlagPersistent, d.acl)
	if errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) || isAmbiguous(err) && ctx.Err() == nil {
		return nil // the next look tells
	}
	return err
}

// list reads the nodes.
func (d *rw1Dir) list(ctx context.Context) error {
	names, _, err := d.c.children(ctx, d.e, d.path)
	if errors.Is(err, zk.ErrNoNode) {
		d.fresh, d.nodes = false, nil
		return nil
	}
	if err != nil {
		return err
	}
	d.nodes, err = rw1Nodes(names)
	return err
}

func (d *rw1Dir) view(policy Policy) *rw1View {
	return &rw1View{policy: policy, gate: d.rec.gate(), nodes: d.nodes}
}

// same reports, after a grant, whether the directory is still the one that was
// looked at. A removed directory's version numbers start again, so that the
// grant's check may have passed against another record. The watch set with the
// record tells without a request: its event would have come before the grant's reply.
func (d *rw1Dir) same(ctx context.Context) (bool, error) {
	if d.watch != nil && !d.watch.fired() {
		return true, nil
	}
	st, err := d.c.exists(ctx, d.e, d.path)
	return err == nil && st != nil && st.Czxid == d.czxid, err
}

// setOps writes the record at the version seen. -1 means "any" on the wire, so it
// must never be a version that somebody checks: it is stepped over.
func (d *rw1Dir) setOps(rec rw1Record) []any {
	ops := []any{&zk.SetDataRequest{Path: d.path, Data: rec.encode(), Version: d.ver}}
	if d.ver == -2 {
		ops = append(ops, &zk.SetDataRequest{Path: d.path, Data: rec.encode(), Version: -1})
	}
	return ops
}

// set writes the record at the version seen. A record that has changed meanwhile,
// or may have, is no error but not fresh any more.
func (d *rw1Dir) set(ctx context.Context, rec rw1Record) error {
	var st *zk.Stat
	var err error
	if ops := d.setOps(rec); len(ops) > 1 {
		var res []zk.MultiResponse
		if res, err = d.c.multi(ctx, d.e, ops...); err == nil {
			st = res[len(res)-1].Stat
		}
	} else {
		st, err = d.c.set(ctx, d.e, d.path, rec.encode(), d.ver)
	}
	switch {
	case err == nil:
		d.rec, d.ver, d.fresh = rec, st.Version, true
		return nil
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		d.fresh = false
		return nil
	case isAmbiguous(err) && ctx.Err() == nil:
		// The next look tells; without the sync it could be too early.
		d.fresh = false
		return d.c.sync(ctx, d.e, d.path)
	}
	return err
}

// setGate changes the mark. A request under way when ctx ends is left alone: the
// mark of an attempt that is over is stale.
func (d *rw1Dir) setGate(ctx context.Context, g rw1Gate) error {
	return d.set(ctx, d.rec.withGate(g))
}

// reopen takes back the mark g, in the background.
func (d *rw1Dir) reopen(g rw1Gate) <-chan struct{} {
	o := rw1Dir{c: d.c, e: d.e, path: d.path, acl: d.acl}
	return d.c.reapFunc(d.e, func(ctx context.Context) error {
		for {
			if err := o.c.sync(ctx, o.e, o.path); err != nil {
				return err
			}
			data, st, err := o.c.get(ctx, o.e, o.path)
			if err != nil {
				return err
			}
			rec, ok := parseRW1Record(data)
			if !ok || rec.gate() != g {
				return nil
			}
			o.ver = st.Version
			if err := o.set(ctx, rec.withGate(rw1Gate{})); err != nil {
				return err
			}
			if o.fresh {
				return nil
			}
		}
	})
}

// rw1Granted is a grant to be carried out.
type rw1Granted struct {
	ops   []rw1Op
	node  rw1Node // the hold node
	queue rw1Node // the contender's queue node, if the operations name it
	data  []byte
}

// grant runs a grant and returns the hold node's stat. When ctx ends it returns
// at once; a node that is made all the same is removed.
func (d *rw1Dir) grant(ctx context.Context, g rw1Granted) (*zk.Stat, error) {
	o := *d
	return deliver(ctx, d.c, d.e, func(bg context.Context) (*zk.Stat, error) {
		return o.grantOnce(bg, g)
	}, func(*zk.Stat) {
		o.c.reap(o.e, join(o.path, g.node.name(true)))
	})
}

// grantOnce is the detached part. A lost reply is made up for: the node is there
// or it is not.
func (d *rw1Dir) grantOnce(ctx context.Context, g rw1Granted) (*zk.Stat, error) {
	res, err := d.c.multi(ctx, d.e, d.wire(g)...)
	if err == nil {
		return res[len(res)-1].Stat, nil
	}
	if !isAmbiguous(err) {
		return nil, err
	}
	if err := d.c.sync(ctx, d.e, d.path); err != nil {
		return nil, err
	}
	st, err := d.c.exists(ctx, d.e, join(d.path, g.node.name(true)))
	if err == nil && st == nil {
		err = zk.ErrBadVersion // it did not happen: look again
	}
	if err == nil {
		d.c.count.recovered.Add(1)
	}
	return st, err
}

// wire makes requests of a grant's operations. The hold node is written once more
// in the same step, because that answers with its stat, and so with the token,
// while the creation answers with the name.
func (d *rw1Dir) wire(g rw1Granted) []any {
	var ops []any
	for _, op := range g.ops {
		n := op.node
		if !n.kind.hold() {
			n = g.queue
		}
		path := join(d.path, n.name(true))
		switch op.op {
		case rw1CheckRecord:
			ops = append(ops, &zk.CheckVersionRequest{Path: d.path, Version: d.ver})
		case rw1CheckNode:
			ops = append(ops, &zk.CheckVersionRequest{Path: path, Version: -1})
		case rw1Delete:
			ops = append(ops, &zk.DeleteRequest{Path: path, Version: -1})
		case rw1Create:
			ops = append(ops, &zk.CreateRequest{Path: path, Data: []byte{}, Acl: d.acl, Flags: zk.FlagEphemeral})
		case rw1SetGate:
			ops = append(ops, d.setOps(d.rec.withGate(op.gate))...)
		}
	}
	return append(ops, &zk.SetDataRequest{Path: join(d.path, g.node.name(true)), Data: g.data, Version: 0})
}
