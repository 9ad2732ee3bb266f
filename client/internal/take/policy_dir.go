package take

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// policyDir is the directory of a policy lock as one contender last saw it, and the transactions on
// it.
type policyDir struct {
	c    *Client
	e    *session.Epoch
	path string

	fresh  bool    // rec and ver are known to be current
	unmade bool    // there is no record yet: rec will be written with the first node
	undo   []zk.Op // operations that take back the record that this contender wrote; nil if it wrote none
	rec    recipe.Record
	ver    int32
	stamp  int64 // when the record was written, by the server's clock
	czxid  int64
	watch  *zk.Watch // watches the record
	nodes  []recipe.PolicyNode
}

// read() reads the record, and makes the directory if it is missing. A missing record is made later, in the
// transaction of the first node, because an attempt of the wrong kind must write nothing.
func (d *policyDir) read(ctx context.Context, cfg *Terms) error {
	for {
		n, w, err := d.e.Conn().GetW(ctx, d.path)
		if errors.Is(err, zk.ErrNoNode) {
			if err := d.e.Ensure(ctx, d.path, cfg.Lasting(), cfg.ACL); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		d.ver, d.stamp, d.czxid, d.watch = n.Stat.Version, n.Stat.Mtime, n.Stat.Czxid, w
		if d.unmade = len(n.Data) == 0; d.unmade {
			d.rec, d.fresh = recipe.NewPolicyRecord(cfg.Policy, cfg.MaxWriterWait), true
			return nil
		}
		rec, ok := recipe.ParsePolicyRecord(n.Data)
		if !ok {
			return fmt.Errorf("%w: the data of %s are not the record of a lock with a policy",
				recipe.ErrMixedLayout, d.path)
		}
		if rec.Policy != cfg.Policy.String() {
			return fmt.Errorf("%w: %s is %q, not %q", ErrPolicyMismatch, d.path, rec.Policy,
				cfg.Policy.String())
		}
		d.rec, d.fresh = rec, true
		return nil
	}
}

// list() reads the nodes.
func (d *policyDir) list(ctx context.Context) error {
	names, err := d.e.Children(ctx, d.path)
	if errors.Is(err, zk.ErrNoNode) {
		d.fresh, d.nodes = false, nil
		return nil
	}
	if err != nil {
		return err
	}
	if err := alone(ctx, d.e, d.path, turns.UsePolicy, names); err != nil {
		return err
	}
	d.nodes, err = recipe.ParsePolicyNodes(names)
	return err
}

func (d *policyDir) view(policy recipe.Policy) *turns.PolicyView {
	return &turns.PolicyView{Policy: policy, Door: d.rec.Mark(), Nodes: d.nodes}
}

// same() reports, after a grant, whether the directory is still the one that the contender looked at. If a
// directory is removed and made again, its version numbers start again, so the server may have checked the
// version of another record. If the watch on the record has not fired, no request is needed: its event would
// have come before the grant's reply.
func (d *policyDir) same(ctx context.Context) (bool, error) {
	if d.watch != nil && !session.IsClosed(d.watch.Fired()) {
		return true, nil
	}
	st, err := d.e.Conn().Exists(ctx, d.path)
	return err == nil && st != nil && st.Czxid == d.czxid, err
}

// setOps returns the operations that write the record if it still has the version seen. On the wire, version
// -1 means "any", so no contender may ever check that version. If the record would get this version, setOps
// writes the record twice.
func (d *policyDir) setOps(rec recipe.Record) []zk.Op {
	ops := []zk.Op{zk.SetData{Path: d.path, Data: rec.Encode(), Version: d.ver}}
	if d.ver == -2 {
		ops = append(ops, zk.SetData{Path: d.path, Data: rec.Encode(), Version: -1})
	}
	return ops
}

// claim() returns the operations that make a transaction depend on the record that the contender has seen. If
// there is no record yet, the operations write it.
func (d *policyDir) claim() []zk.Op {
	if !d.unmade {
		return []zk.Op{zk.Check{Path: d.path, Version: d.ver}}
	}
	return d.setOps(d.rec)
}

// claimed() notes that a transaction with the operations of claim() was carried out.
func (d *policyDir) claimed() {
	if d.unmade {
		made := d.ver + int32(len(d.setOps(d.rec)))
		d.undo = []zk.Op{zk.SetData{Path: d.path, Data: []byte{}, Version: made}}
		d.ver, d.unmade = made, false
	}
}

// set() writes the record if it still has the version that the contender has seen. If the record has changed,
// or may have changed, set() returns no error, but sets the field `fresh` to false.
func (d *policyDir) set(ctx context.Context, rec recipe.Record) error {
	var st zk.Stat
	var err error
	if ops := d.setOps(rec); len(ops) > 1 {
		var res []zk.Result
		if res, err = d.e.Conn().Multi(ctx, ops...); err == nil {
			st = res[len(res)-1].Stat
		}
	} else {
		st, err = d.e.Conn().Set(ctx, d.path, rec.Encode(), d.ver)
	}
	switch {
	case err == nil:
		d.rec, d.ver, d.stamp, d.fresh = rec, st.Version, st.Mtime, true
		return nil
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		d.fresh = false
		return nil
	case errors.Is(err, zk.ErrUncertain) && ctx.Err() == nil:
		// Sync first: the next read could otherwise miss this write.
		d.fresh = false
		return d.e.Conn().Sync(ctx, d.path)
	}
	return err
}

// setDoor changes the mark of the door. If ctx ends, setDoor does not take back a request under way: the
// attempt is over then, and its mark is stale.
func (d *policyDir) setDoor(ctx context.Context, g recipe.Door) error {
	return d.set(ctx, d.rec.WithDoor(g))
}

// setDead writes into the record that the owner of the mark is dead. The lock delay counts from the time of
// that write.
func (d *policyDir) setDead(ctx context.Context) error {
	rec := d.rec
	rec.Dead = true
	return d.set(ctx, rec)
}

// unmark() returns the operations that take back a writer's mark when the writer releases the lock. No client
// changes the record while the writer holds the lock.
func (d *policyDir) unmark(cfg *Terms) []zk.Op {
	if cfg.LockDelay == 0 {
		return nil // without its owner's node the mark is stale, so it may stay
	}
	return d.setOps(d.rec.WithDoor(recipe.Door{}))
}

// reopen() takes back the mark g, in the background.
func (d *policyDir) reopen(g recipe.Door) <-chan struct{} {
	o := policyDir{c: d.c, e: d.e, path: d.path}
	return d.e.ReapFunc([]string{d.path}, func(ctx context.Context) error {
		if err := o.e.Conn().Sync(ctx, o.path); err != nil {
			return err
		}
		n, err := o.e.Conn().Get(ctx, o.path)
		if err != nil {
			return err
		}
		rec, ok := recipe.ParsePolicyRecord(n.Data)
		if !ok || rec.Mark() != g {
			return nil
		}
		o.ver = n.Stat.Version
		if err := o.set(ctx, rec.WithDoor(recipe.Door{})); err != nil || o.fresh {
			return err
		}
		return session.ErrAgain
	})
}
