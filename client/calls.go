package client

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// The library's calls know no context and return only on a reply or when the
// connection ends. Here each runs in a goroutine of its own unless the caller
// cannot be interrupted anyway.

// call runs f once the session is attached. A request that is under way when ctx
// ends goes on; the error then says that its outcome is unknown.
func call[T any](ctx context.Context, c *Client, e *epoch, f func() (T, error)) (T, error) {
	var zero T
	if err := e.awaitAttached(ctx); err != nil {
		return zero, err
	}
	if ctx.Done() == nil {
		v, err := f()
		if err != nil && c.isClosed() {
			err = unfinished{ErrClosed}
		}
		return v, err
	}
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	c.work.begin()
	go func() {
		defer c.work.end()
		v, err := f()
		ch <- result{v, err}
	}()
	select {
	case r := <-ch:
		if r.err != nil && c.isClosed() {
			r.err = unfinished{ErrClosed}
		}
		return r.v, r.err
	case <-ctx.Done():
		return zero, unfinished{ctxErr(ctx)}
	case <-e.gone:
		return zero, ErrSessionExpired
	case <-c.drain:
		// What cleans up cannot be interrupted and goes on until the end.
		return zero, unfinished{ErrClosed}
	}
}

func (c *Client) isClosed() bool { return isClosed(c.closing) }

// lost reports whether err says that a reply may have been lost, so that a read
// should be repeated.
func lost(err error) bool {
	return err != nil && !isDefinite(err) && !errors.Is(err, ErrSessionExpired) && !errors.As(err, &unfinished{}) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// read is call for requests that may be repeated.
func read[T any](ctx context.Context, c *Client, e *epoch, f func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		v, err := call(ctx, c, e, f)
		if !lost(err) {
			return v, err
		}
		// The connection is usually known to be gone by now, and the next call
		// waits for another one.
		if err := pause(ctx, backoff(n, 5*time.Millisecond, time.Second)); err != nil {
			return v, err
		}
	}
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

// nodeData is a node's content.
type nodeData struct {
	data []byte
	stat *zk.Stat
}

func (c *Client) get(ctx context.Context, e *epoch, path string) ([]byte, *zk.Stat, error) {
	d, err := read(ctx, c, e, func() (nodeData, error) {
		b, st, err := c.conn.Get(c.full(path))
		return nodeData{b, st}, err
	})
	return d.data, d.stat, err
}

// exists returns nil, nil for a node that is absent.
func (c *Client) exists(ctx context.Context, e *epoch, path string) (*zk.Stat, error) {
	return read(ctx, c, e, func() (*zk.Stat, error) {
		ok, st, err := c.conn.Exists(c.full(path))
		if !ok {
			st = nil
		}
		return st, err
	})
}

type listing struct {
	names []string
	stat  *zk.Stat
}

func (c *Client) children(ctx context.Context, e *epoch, path string) ([]string, *zk.Stat, error) {
	l, err := read(ctx, c, e, func() (listing, error) {
		names, st, err := c.conn.Children(c.full(path))
		return listing{names, st}, err
	})
	return l.names, l.stat, err
}

func (c *Client) sync(ctx context.Context, e *epoch, path string) error {
	_, err := read(ctx, c, e, func() (string, error) { return c.conn.Sync(c.full(path)) })
	return err
}

// relist is what is true after a write whose outcome is unknown. Without the sync
// a list could come from a server that has not yet applied a write that will
// still happen.
func (c *Client) relist(ctx context.Context, e *epoch, dir string) ([]string, error) {
	if err := c.sync(ctx, e, dir); err != nil {
		return nil, err
	}
	names, _, err := c.children(ctx, e, dir)
	return names, err
}

func (c *Client) set(ctx context.Context, e *epoch, path string, data []byte, version int32) (*zk.Stat, error) {
	return call(ctx, c, e, func() (*zk.Stat, error) { return c.conn.Set(c.full(path), data, version) })
}

func (c *Client) delete(ctx context.Context, e *epoch, path string, version int32) error {
	_, err := call(ctx, c, e, func() (struct{}, error) { return struct{}{}, c.conn.Delete(c.full(path), version) })
	return err
}

func (c *Client) create(ctx context.Context, e *epoch, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	p, err := call(ctx, c, e, func() (string, error) { return c.conn.Create(c.full(path), data, flags, acl) })
	if err != nil {
		return "", err
	}
	return c.own(p), nil
}

// multiError is the refusal of a transaction.
type multiError struct {
	error     // of the first operation that failed
	Index int // which one that is, -1 if unknown
}

func (m *multiError) Unwrap() error { return m.error }

// failedAt returns which operation of a transaction was refused, -1 if unknown.
func failedAt(err error) int {
	var m *multiError
	if errors.As(err, &m) {
		return m.Index
	}
	return -1
}

// multi sends one transaction; the paths in ops are client paths. All or nothing happens.
func (c *Client) multi(ctx context.Context, e *epoch, ops ...any) ([]zk.MultiResponse, error) {
	mapped := make([]any, len(ops))
	for i, op := range ops {
		switch op := op.(type) {
		case *zk.CreateRequest:
			o := *op
			o.Path = c.full(op.Path)
			mapped[i] = &o
		case *zk.DeleteRequest:
			mapped[i] = &zk.DeleteRequest{Path: c.full(op.Path), Version: op.Version}
		case *zk.SetDataRequest:
			mapped[i] = &zk.SetDataRequest{Path: c.full(op.Path), Data: op.Data, Version: op.Version}
		case *zk.CheckVersionRequest:
			mapped[i] = &zk.CheckVersionRequest{Path: c.full(op.Path), Version: op.Version}
		default:
			mapped[i] = op
		}
	}
	return call(ctx, c, e, func() ([]zk.MultiResponse, error) {
		res, err := c.conn.Multi(mapped...)
		if err == nil {
			for i := range res {
				res[i].String = c.own(res[i].String)
			}
			return res, nil
		}
		for i, r := range res {
			if r.Error != nil && !isCode(r.Error, codeRolledBack) {
				return res, &multiError{r.Error, i}
			}
		}
		return res, err
	})
}
