package client

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// ensure makes a directory and what is missing above it. A container may be
// removed between any two steps, so the caller repeats create and ensure as
// often as it takes.
func (c *Client) ensure(ctx context.Context, e *epoch, dir string, acl []zk.ACL) error {
	return c.ensureFull(ctx, e, c.full(dir), acl)
}

// ensureFull is ensure for a server path: the chroot is made as well.
func (c *Client) ensureFull(ctx context.Context, e *epoch, dir string, acl []zk.ACL) error {
	for {
		err := c.createDir(ctx, e, dir, acl)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode):
			if err := c.ensureFull(ctx, e, parentOf(dir), acl); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// createDir makes one container, or a persistent node where the server knows no
// containers. Making it twice does no harm, so lost replies are repeated.
func (c *Client) createDir(ctx context.Context, e *epoch, dir string, acl []zk.ACL) error {
	container := !c.opt.persistent && !c.noContainers.Load()
	_, err := read(ctx, c, e, func() (struct{}, error) {
		var err error
		if container {
			err = c.makeContainer(dir, acl)
		} else {
			_, err = c.conn.Create(dir, []byte{}, zk.FlagPersistent, acl)
		}
		return struct{}{}, err
	})
	if container && (errors.Is(err, zk.ErrBadArguments) || isCode(err, codeUnimplemented)) {
		c.noContainers.Store(true)
		return c.createDir(ctx, e, dir, acl)
	}
	return err
}

// makeContainer holds off the library's Close: its call for containers, unlike
// all others, may not be under way then.
func (c *Client) makeContainer(dir string, acl []zk.ACL) error {
	c.making.RLock()
	defer c.making.RUnlock()
	if c.isClosed() {
		return ErrClosed
	}
	_, err := c.conn.CreateContainer(dir, []byte{}, zk.FlagContainer, acl)
	return err
}
