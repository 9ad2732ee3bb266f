package zk

import (
	"context"
	"errors"
	"path"
	"strings"
)

// chroot is the part of the tree that a Conn sees, "" for the whole tree.
type chroot string

// full maps a path of the caller to the server's.
func (r chroot) full(path string) string {
	switch {
	case r == "":
		return path
	case path == "/":
		return string(r)
	}
	return string(r) + path
}

// own maps a path of the server to the caller's.
func (r chroot) own(path string) string {
	if r == "" || !strings.HasPrefix(path, string(r)) {
		return path
	}
	if p := path[len(r):]; p != "" {
		return p
	}
	return "/"
}

// MakePath creates a persistent node, or a container, and all missing nodes above it, the chroot
// included. It is no error if the node exists. The nodes above get the same mode. The server may
// remove a container without children again at any time.
func (c *Conn) MakePath(ctx context.Context, path string, mode Mode, acl []ACL) error {
	return c.makePath(ctx, c.root.full(path), mode, acl)
}

func (c *Conn) makePath(ctx context.Context, full string, mode Mode, acl []ACL) error {
	for {
		r := newCreate("", Create{Path: full, Data: []byte{}, Mode: mode, ACL: acl})
		r.repeat = true // creating it twice does no harm
		_, err := do(ctx, c, r)
		switch {
		case err == nil, errors.Is(err, ErrNodeExists):
			return nil
		case !errors.Is(err, ErrNoNode):
			return err
		}
		if err := c.makePath(ctx, path.Dir(full), mode, acl); err != nil {
			return err
		}
	}
}
