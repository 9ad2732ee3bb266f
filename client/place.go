package client

import (
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// place is a contender's own node in a queue, from its creation until it is given up or becomes a
// hold.
type place struct {
	created
	c     *Client
	e     *epoch
	a     *attempt
	own   *zk.Watch // on the node; nil until a wait has lasted
	since uint64    // the connection on which own was set
	ver   int32     // of the data
}

// look reads and watches the own node.
func (p *place) look(ctx context.Context) error {
	since := p.c.count.wire.Connections.Load()
	s, err := p.e.see(ctx, p.path, true)
	return p.saw(s, err, since)
}

// saw takes in what a look at the own node saw; since is the number of the connection.
func (p *place) saw(s seen, err error, since uint64) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return p.displaced()
	case err != nil:
		return p.lostSession(err)
	case s.listed:
		p.own, p.since = s.w, since // of the directory: it is there
		return nil
	case s.Stat.EphemeralOwner != p.e.sid:
		return p.displaced() // another client made a node of that name
	}
	p.own, p.since, p.data, p.ver = s.w, since, s.Data, s.Stat.Version
	if r, ok := recipe.RevocationIn(s.Data); ok {
		p.c.opt.log.Info("waiter asked to leave", "path", p.a.path, "by", r.By, "reason", r.Reason)
		return &LostError{Path: p.a.path, Node: p.path, Reason: Revoked}
	}
	return nil
}

// watch sets a watch on the own node, unless there is one.
func (p *place) watch(ctx context.Context) error {
	if p.own != nil && !isClosed(p.own.Fired()) {
		return nil
	}
	return p.look(ctx)
}

// stays reports whether the own node has been there since its watch was set. On another
// connection the server may report the end of the awaited node before the end of the own node, so
// that the waiter needs a list.
func (p *place) stays() bool {
	return p.own != nil && !isClosed(p.own.Fired()) && p.since == p.c.count.wire.Connections.Load()
}

// displaced returns the error for an own node that is gone.
func (p *place) displaced() error {
	if p.e.ended() {
		return &requeueError{ErrSessionExpired}
	}
	return &requeueError{ErrNodeRemoved}
}

// lostSession turns the end of the session into the loss of the place.
func (p *place) lostSession(err error) error {
	if errors.Is(err, ErrSessionExpired) {
		return &requeueError{ErrSessionExpired}
	}
	return err
}

// stamp records the time of a grant that had to wait, in the node of a holder that others may
// break: they count from that time.
func (p *place) stamp(ctx context.Context) {
	o, ok := recipe.ParseOwner(p.data)
	if !ok || !o.Breakable {
		return
	}
	o.Held = true
	_, err := again(ctx,
		func() (zk.Stat, error) { return p.e.conn.Set(ctx, p.path, recipe.EncodeOwner(o), p.ver) })
	if err != nil {
		p.c.opt.log.Debug("grant not stamped", "node", p.path, "err", err)
	}
}

// serverTime returns the server's time of a write to the own node. It first reads what others have
// written there, such as the request that this waiter leaves.
func (p *place) serverTime(ctx context.Context) (int64, error) {
	for ver := p.ver; ; {
		st, err := again(ctx, func() (zk.Stat, error) { return p.e.conn.Set(ctx, p.path, p.data, ver) })
		switch {
		case err == nil:
			p.ver = st.Version
			return st.Mtime, nil
		case errors.Is(err, zk.ErrNoNode):
			return 0, p.displaced()
		case !errors.Is(err, zk.ErrBadVersion):
			return 0, err
		}
		if err := p.look(ctx); err != nil {
			return 0, err
		}
		if p.ver == ver {
			ver = -1 // it may not be read
			continue
		}
		ver = p.ver
	}
}

// sit waits for d at the own place.
func (p *place) sit(ctx context.Context, d time.Duration) error {
	over := time.Now().Add(d)
	for left := d; left > 0; left = time.Until(over) {
		if err := p.watch(ctx); err != nil {
			return err
		}
		if err := p.e.rest(ctx, time.After(left), p.own.Fired()); err != nil {
			return err
		}
	}
	return nil
}
