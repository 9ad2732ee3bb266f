package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// ask sends one request in a session and waits for its answer, until ctx ends or the
// session is over. A request that is under way then goes on.
func ask[T any](ctx context.Context, e *epoch, put func(p *zk.Pipe) *zk.Reply[T]) (T, error) {
	if ctx.Err() != nil {
		var none T
		return none, ctxErr(ctx)
	}
	p := e.conn.Pipe()
	r := put(p)
	p.Send()
	return await(ctx, r)
}

// await waits for an answer.
func await[T any](ctx context.Context, r *zk.Reply[T]) (T, error) {
	v, err := r.Wait(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		if isAmbiguous(err) {
			return v, fmt.Errorf("%w: %w", zk.ErrUncertain, ctxErr(ctx))
		}
		return v, ctxErr(ctx)
	}
	return v, err
}

// again repeats what may be done twice until its outcome is known.
func again[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		v, err := f()
		if err == nil || !errors.Is(err, zk.ErrUncertain) || ctx.Err() != nil {
			return v, err
		}
		if err := pause(ctx, backoff(n, 5*time.Millisecond, time.Second)); err != nil {
			return v, err
		}
	}
}

// errAgain asks steadily to repeat.
var errAgain = errors.New("client: again")

// steadily runs f, which may be repeated, in a confirmed session, over lost replies and
// lost sessions. It is about path.
func (c *Client) steadily(ctx context.Context, path string, f func(*epoch) error) error {
	if err := checkPath(path); err != nil {
		return err
	}
	ctx, end := c.during(ctx)
	defer end()
	for n := 1; ; {
		e, err := c.epoch(ctx)
		if err != nil {
			return err
		}
		err = f(e)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctxErr(ctx)
		case errors.Is(err, errAgain), errors.Is(err, ErrSessionExpired):
			continue
		case !isAmbiguous(err):
			return publicErr(err)
		}
		if err := pause(ctx, backoff(n, time.Millisecond, time.Second)); err != nil {
			return err
		}
		n++
	}
}

// update writes what f makes of a node's data, and begins again if somebody else has
// changed them meanwhile, or if nobody knows what came of it. Where f returns nil the
// data are left as they are.
func (c *Client) update(ctx context.Context, e *epoch, path string, f func(data []byte) ([]byte, error)) error {
	for n := 1; ; n++ {
		have, err := c.get(ctx, e, path)
		if err != nil {
			return err
		}
		fresh, err := f(have.Data)
		if fresh == nil || err != nil {
			return err
		}
		_, err = c.set(ctx, e, path, fresh, have.Stat.Version)
		if !errors.Is(err, zk.ErrBadVersion) && (!isAmbiguous(err) || ctx.Err() != nil) {
			return err
		}
		if err := pause(ctx, backoff(n, time.Millisecond, time.Second)); err != nil {
			return err
		}
	}
}

// read is ask for requests that may be repeated. Lost connections are the
// session's business; here it is about servers that answer that they do not know.
func read[T any](ctx context.Context, e *epoch, put func(p *zk.Pipe) *zk.Reply[T]) (T, error) {
	return again(ctx, func() (T, error) { return ask(ctx, e, put) })
}

// pause sleeps unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctxErr(ctx)
	}
}

// backoff is the delay before attempt n (1, 2, …): doubling from first to last,
// give or take a quarter.
func backoff(n int, first, last time.Duration) time.Duration {
	d := last
	if n < 16 {
		d = min(last, first<<(n-1))
	}
	return d*3/4 + rand.N(d/2+1)
}

func (c *Client) get(ctx context.Context, e *epoch, path string) (zk.Node, error) {
	return read(ctx, e, func(p *zk.Pipe) *zk.Reply[zk.Node] { return p.Get(path) })
}

// exists returns nil, nil for a node that is absent.
func (c *Client) exists(ctx context.Context, e *epoch, path string) (*zk.Stat, error) {
	return read(ctx, e, func(p *zk.Pipe) *zk.Reply[*zk.Stat] { return p.Exists(path) })
}

func (c *Client) names(ctx context.Context, e *epoch, path string) (zk.Names, error) {
	return read(ctx, e, func(p *zk.Pipe) *zk.Reply[zk.Names] { return p.Names(path) })
}

func (c *Client) children(ctx context.Context, e *epoch, path string) ([]string, error) {
	n, err := c.names(ctx, e, path)
	return n.List(), err
}

func (c *Client) sync(ctx context.Context, e *epoch, path string) error {
	_, err := read(ctx, e, func(p *zk.Pipe) *zk.Reply[struct{}] { return p.Sync(path) })
	return err
}

// relist is what is true after a write whose outcome is unknown. Without the sync
// a list could come from a server that has not yet applied a write that will
// still happen.
func (c *Client) relist(ctx context.Context, e *epoch, dir string) ([]string, error) {
	if err := c.sync(ctx, e, dir); err != nil {
		return nil, err
	}
	return c.children(ctx, e, dir)
}

// watched is a read that sets a watch.
func watched[T any](ctx context.Context, e *epoch, put func(p *zk.Pipe) *zk.Reply[T]) (T, *zk.Watch, error) {
	var r *zk.Reply[T]
	v, err := read(ctx, e, func(p *zk.Pipe) *zk.Reply[T] {
		r = put(p)
		return r
	})
	if err != nil {
		return v, nil, err
	}
	return v, r.Watch(), nil
}

// getW reads a node and watches it for a change of its data and its deletion.
func (c *Client) getW(ctx context.Context, e *epoch, path string) (zk.Node, *zk.Watch, error) {
	return watched(ctx, e, func(p *zk.Pipe) *zk.Reply[zk.Node] { return p.GetW(path) })
}

// existsW watches a node that may be absent: then for its creation.
func (c *Client) existsW(ctx context.Context, e *epoch, path string) (*zk.Stat, *zk.Watch, error) {
	return watched(ctx, e, func(p *zk.Pipe) *zk.Reply[*zk.Stat] { return p.ExistsW(path) })
}

// list lists a node and may watch it for a change of the list.
func (c *Client) list(ctx context.Context, e *epoch, path string, watch bool) ([]string, *zk.Watch, error) {
	if !watch {
		names, err := c.children(ctx, e, path)
		return names, nil, err
	}
	n, w, err := watched(ctx, e, func(p *zk.Pipe) *zk.Reply[zk.Names] { return p.NamesW(path) })
	return n.List(), w, err
}

// seen is what could be seen of a node, and what tells of its end.
type seen struct {
	zk.Node
	listed bool      // that is all that is known
	w      *zk.Watch // on the node or its directory; nil if neither may be watched
	hidden bool      // it may not be read, so that its watch need not tell of its end
}

// see reads and watches a node; ErrNoNode says that it is gone. getData is
// preferred: unlike exists it leaves no watch behind on a node that is gone. Of a
// node that may not be asked about, its directory tells; it is watched only if that
// is wanted, because that wakes for every other child too.
func (c *Client) see(ctx context.Context, e *epoch, path string, watchDir bool) (s seen, err error) {
	if s.Node, s.w, err = c.getW(ctx, e, path); !errors.Is(err, zk.ErrNoAuth) {
		return s, err
	}
	s.hidden = true
	st, w, err := c.existsW(ctx, e, path)
	switch {
	case err == nil && st == nil:
		return s, zk.ErrNoNode
	case err == nil:
		s.Stat, s.w = *st, w
		return s, nil
	case !errors.Is(err, zk.ErrNoAuth):
		return s, err
	}
	s.listed = true
	var names []string
	names, s.w, err = c.list(ctx, e, parentOf(path), watchDir)
	if err == nil && !slices.Contains(names, baseName(path)) {
		err = zk.ErrNoNode
	}
	return s, err
}

func (c *Client) set(ctx context.Context, e *epoch, path string, data []byte, version int32) (*zk.Stat, error) {
	st, err := ask(ctx, e, func(p *zk.Pipe) *zk.Reply[zk.Stat] {
		return p.Set(zk.SetData{Path: path, Data: data, Version: version})
	})
	return &st, err
}

func (c *Client) delete(ctx context.Context, e *epoch, path string, version int32) error {
	_, err := ask(ctx, e, func(p *zk.Pipe) *zk.Reply[struct{}] { return p.Delete(zk.Delete{Path: path, Version: version}) })
	return err
}

// remove deletes a node until it is gone.
func (c *Client) remove(ctx context.Context, e *epoch, path string) error {
	_, err := again(ctx, func() (struct{}, error) { return struct{}{}, c.delete(ctx, e, path, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

func (c *Client) create(ctx context.Context, e *epoch, op zk.Create) (zk.Created, error) {
	return ask(ctx, e, func(p *zk.Pipe) *zk.Reply[zk.Created] { return p.Create(op) })
}

// multi sends one transaction. All or nothing happens.
func (c *Client) multi(ctx context.Context, e *epoch, ops ...zk.Op) ([]zk.Result, error) {
	return ask(ctx, e, func(p *zk.Pipe) *zk.Reply[[]zk.Result] { return p.Multi(ops...) })
}

// failedAt returns which operation of a transaction was refused, -1 if unknown.
func failedAt(err error) int {
	var m *zk.MultiError
	if errors.As(err, &m) {
		return m.Index
	}
	return -1
}

// ensure makes a directory and what is missing above it, the chroot included:
// containers, or persistent nodes where the server knows no containers. A container
// may be removed between any two steps, so the caller repeats create and ensure as
// often as it takes.
func (c *Client) ensure(ctx context.Context, e *epoch, dir string, acl []zk.ACL) error {
	mode := zk.Container
	if c.opt.persistent || c.noContainers.Load() {
		mode = zk.Persistent
	}
	_, err := again(ctx, func() (struct{}, error) {
		return struct{}{}, e.conn.MakePath(ctx, dir, mode, acl)
	})
	if err != nil && ctx.Err() != nil {
		return ctxErr(ctx)
	}
	if mode == zk.Container && (errors.Is(err, zk.ErrBadArguments) || errors.Is(err, zk.ErrUnimplemented)) {
		c.noContainers.Store(true)
		return c.ensure(ctx, e, dir, acl)
	}
	return err
}
