package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/server/view/answer"
)

// path() prints one path.
func (s *Shell) path(p string) error {
	if s.Format == call.JSON {
		return s.json(struct {
			Path string `json:"path"`
		}{p})
	}
	s.print("%s", answer.Visible(p))
	return nil
}

// walk() calls f() for a node and all nodes below it, parents first. For a node whose children the session
// may not read, it calls hidden() instead. If hidden() is nil, walk() ends with an error there.
func (s *Shell) walk(ctx context.Context, p string, hidden, f func(path string) error) error {
	names, _, err := s.children(ctx, p)
	if errors.Is(err, zk.ErrNoAuth) && hidden != nil {
		return hidden(p)
	}
	if err != nil {
		return err
	}
	if err := f(p); err != nil {
		return err
	}
	for _, n := range names {
		err := s.walk(ctx, path.Join(p, n), hidden, f)
		if errors.Is(err, zk.ErrNoNode) {
			continue // the node was removed during the walk
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookThrough is walk() for verbs whose answer names nodes. If the session may not read the children of a
// node, it says so in the answer and continues. At the end it returns an error.
func (c *verbCall) lookThrough(ctx context.Context, root string, f func(path string) error) error {
	var left leftOut
	err := c.walk(ctx, root, func(p string) error {
		if p == root {
			return noAuth(p)
		}
		if c.Name() != "export" { // the name of p is known, but export needs its data, too
			if err := f(p); err != nil {
				return err
			}
		}
		return left.out(c, p)
	}, f)
	return cmp.Or(err, left.err(root))
}

// leftOut counts the nodes whose children are left out of an answer.
type leftOut int

// out() reports that the children of a node are left out.
func (l *leftOut) out(c *verbCall, p string) error {
	*l++
	c.tell("%v", noAuth(p))
	if c.Format != call.JSON || c.Name() == "export" { // an export has only nodes in its lines, and no errors
		return nil
	}
	return c.json(struct {
		Path  string `json:"path"`
		Error string `json:"error"`
	}{p, "Insufficient permission"})
}

func (l *leftOut) err(root string) error {
	if *l == 0 {
		return nil
	}
	return refused{fmt.Sprintf("%d nodes below %s may not be read: the nodes below them are left out", *l,
		answer.Visible(root))}
}

func search(ctx context.Context, c *verbCall) error {
	if _, err := path.Match(c.args[1], ""); err != nil {
		return fmt.Errorf("the pattern %q: %w", c.args[1], err)
	}
	return c.lookThrough(ctx, c.args[0], func(p string) error {
		name, _ := path.Match(c.args[1], path.Base(p))
		whole, _ := path.Match(c.args[1], p)
		if !name && !whole {
			return nil
		}
		return c.path(p)
	})
}

func tree(ctx context.Context, c *verbCall) error {
	if c.Format == call.JSON {
		return c.lookThrough(ctx, c.args[0], c.path)
	}
	c.print("%s", answer.Visible(c.args[0]))
	var left leftOut
	err := c.branches(ctx, c.args[0], "", &left)
	return cmp.Or(err, left.err(c.args[0]))
}

func (c *verbCall) branches(ctx context.Context, p, before string, left *leftOut) error {
	names, _, err := c.children(ctx, p)
	if errors.Is(err, zk.ErrNoAuth) && before != "" {
		return left.out(c, p)
	}
	for i, n := range names {
		line, below := "├── ", "│   "
		if i == len(names)-1 {
			line, below = "└── ", "    "
		}
		c.print("%s%s%s", before, line, answer.Visible(n))
		err := c.branches(ctx, path.Join(p, n), before+below, left)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return err
}
