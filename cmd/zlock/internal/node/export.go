package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
)

// The type exported is a line of an export. Its path is relative to the root of the export; the root's path
// is empty.
type exported struct {
	Path string `json:"path"`
	content
	ACL []string `json:"acl"`
}

func export(ctx context.Context, c *verbCall) (failed error) {
	root, out := c.args[0], c.Out
	if c.file != "" && c.file != "-" {
		f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s is there already: name another file", c.file)
		}
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, f.Close()) }()
		out = f
	}
	written, left := json.NewEncoder(out), 0
	written.SetEscapeHTML(false)
	err := c.lookThrough(ctx, root, func(p string) error {
		n, err := c.Conn.Get(ctx, p)
		if err != nil {
			return err
		}
		if n.Stat.EphemeralOwner != 0 {
			left++
			return nil // this marks ephemeral, container and TTL nodes: leave them out
		}
		list, _, err := c.Conn.GetACL(ctx, p)
		if err != nil {
			return err
		}
		e := exported{Path: strings.TrimPrefix(strings.TrimPrefix(p, root), "/"), content: contentOf(n.Data)}
		for _, a := range list {
			e.ACL = append(e.ACL, textOf(a))
		}
		return written.Encode(e)
	})
	if left > 0 {
		c.tell("%d nodes are left out: they belong to sessions, are containers, or have a TTL", left)
	}
	return err
}

func imports(ctx context.Context, c *verbCall) error {
	var in io.Reader = c.input()
	if c.file != "" && c.file != "-" {
		f, err := os.Open(c.file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	lines, made, changed := json.NewDecoder(bufio.NewReader(in)), 0, 0
	for {
		var e exported
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			c.tell("%d nodes made, %d changed", made, changed)
			return nil
		} else if err != nil {
			return fmt.Errorf("line %d of the import: %w", made+changed+1, err)
		}
		var acl []zk.ACL
		for _, text := range e.ACL {
			a, err := parseEntry(text)
			if err != nil {
				return err
			}
			acl = append(acl, a)
		}
		p := c.args[0]
		if e.Path != "" {
			if err := checkPath("/" + e.Path); err != nil { // refuses "..": a node must not be made outside c.args[0]
				return err
			}
			p = path.Join(p, e.Path)
		}
		node := zk.Create{Path: p, Data: e.bytes(), ACL: acl}
		_, err := c.Conn.Create(ctx, node)
		if errors.Is(err, zk.ErrNoNode) && e.Path != "" { // its parent is missing: exports leave out containers
			if err = c.Conn.MakePath(ctx, path.Dir(p), zk.Container, nil); err == nil {
				_, err = c.Conn.Create(ctx, node)
			}
		}
		refusal, ok := errors.AsType[*zk.Error](err)
		switch {
		case err == nil:
			made++
		case !ok || refusal.Code != jute.NodeExists || !c.force:
			return err
		default:
			if _, err := c.Conn.Set(ctx, p, e.bytes(), -1); err != nil {
				return err
			}
			if len(acl) > 0 {
				if _, err := c.Conn.SetACL(ctx, p, acl, -1); err != nil {
					return err
				}
			}
			changed++
		}
	}
}
