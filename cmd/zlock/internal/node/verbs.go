package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/server/view/answer"
)

// table() returns the verbs.
func table() []verb {
	withStat := func(c *verbCall) { c.BoolVarP(&c.stat, "stat", "s", false, "") }
	withVersion := func(c *verbCall) { c.Int32VarP(&c.version, "version", "v", -1, "") }
	watching := func(c *verbCall) { c.BoolVarP(&c.watch, "watch", "w", false, "") }
	deep := func(c *verbCall) { c.BoolVarP(&c.deep, "recursive", "R", false, "") }
	file := func(c *verbCall) { c.StringVarP(&c.file, "file", "f", "", "") }
	yes := func(c *verbCall) { c.BoolVarP(&c.yes, "yes", "y", false, "") }
	all := func(list ...func(*verbCall)) func(*verbCall) {
		return func(c *verbCall) {
			for _, f := range list {
				f(c)
			}
		}
	}
	return []verb{
		{"ls", "[-s] [-w] [-R] path", "list the names below a node (-R: all paths, with its own)", 1, 1,
			all(withStat, watching, deep), ls},
		{"get", "[-s] [-w] [-f FILE] path", "show a node's data (-f: write the bytes to FILE; - is stdout)",
			1, 1, all(withStat, watching, file), get},
		{"stat", "[-w] path", "show a node's versions, times and sizes", 1, 1, watching, stat},
		{"set", "[-s] [-v version] path data | -f FILE", "change a node's data (-f: from FILE; - is stdin)",
			1, 2, all(withStat, withVersion, file), set},
		{"create", "[-s] [-e] [-c] [-t ttl] path [data] [acl]", "make a node (-s: sequential, -e: ephemeral)",
			1, 3, all(file, func(c *verbCall) {
				c.BoolVarP(&c.sequential, "sequential", "s", false, "")
				c.BoolVarP(&c.ephemeral, "ephemeral", "e", false, "")
				c.BoolVarP(&c.boxed, "container", "c", false, "")
				c.Int64VarP(&c.ttl, "ttl", "t", 0, "")
			}), create},
		{"delete", "[-v version] path", "remove a node without children; rm -r is deleteall", 1, 1,
			all(withVersion, yes, func(c *verbCall) {
				c.BoolVarP(&c.deep, "recursive", "r", false, "")
			}), remove},
		{"deleteall", "[-y] path", "remove a node and all nodes below it; at a terminal, ask first", 1, 1,
			all(yes, func(c *verbCall) { c.StringVarP(&c.mode, "batch", "b", "", "") }), removeAll},
		{"getAcl", "[-s] path", "show the ACL of a node", 1, 1, withStat, getACL},
		{"setAcl", "[-s] [-v version] [-R] path acl", "set the ACL of a node", 2, 2,
			all(withStat, withVersion, deep), setACL},
		{"addauth", "scheme auth", "sign in", 1, 2, nil, addAuth},
		{"whoami", "", "show the identities of the session", 0, 0, nil, whoAmI},
		{"watch", "[-m mode] path", "print the changes of a node, and of all nodes " +
			"below", 1, 1, func(c *verbCall) {
			c.StringVarP(&c.mode, "mode", "m", "PERSISTENT_RECURSIVE", "")
		}, watch},
		{"removewatches", "path", "remove all watches of a node", 1, 1, nil, removeWatches},
		{"tree", "path", "draw the nodes below a node", 1, 1, nil, tree},
		{"find", "path pattern", "list the nodes whose name or path matches a pattern, such as *.lock",
			2, 2, nil, search},
		{"export", "[-f FILE] path", "write a node and all below as lines of JSON", 1, 1, file, export},
		{"import", "[--force] [-f FILE] path", "make nodes from such lines below a path (--force: also " +
			"change nodes)",
			1, 1, all(file, func(c *verbCall) { c.BoolVar(&c.force, "force", false, "") }), imports},
		{"getAllChildrenNumber", "path", "count the nodes below a node", 1, 1, nil, countAll},
		{"getEphemerals", "[path]", "list the ephemeral nodes of this session", 0, 1, nil, ephemerals},
		{"sync", "path", "wait until the server has all earlier changes", 1, 1, nil, syncPath},
		{"version", "", "show the version", 0, 0, nil, func(_ context.Context, c *verbCall) error {
			c.print("%s", c.Version)
			return nil
		}},
		{"history", "", "list the last verbs", 0, 0, nil, func(_ context.Context, c *verbCall) error {
			for i := max(0, len(c.history)-11); i < len(c.history); i++ {
				c.print("%d - %s", i, answer.Visible(c.history[i]))
			}
			return nil
		}},
		{"help", "", "list the verbs", 0, 0, nil, func(_ context.Context, c *verbCall) error {
			c.print("%s", strings.TrimSuffix(Help(), "\n"))
			return nil
		}},
		{"quit", "", "end the session", 0, 0, nil, func(_ context.Context, c *verbCall) error {
			c.Shell.quit = true
			return nil
		}},
	}
}

func ls(ctx context.Context, c *verbCall) error {
	p := c.args[0]
	if c.deep {
		return c.lookThrough(ctx, p, c.path)
	}
	var names []string
	var st zk.Stat
	var err error
	var w *zk.Watch
	if c.watch {
		names, st, w, err = c.Conn.ChildrenW(ctx, p)
		sort.Strings(names)
	} else {
		names, st, err = c.children(ctx, p)
	}
	if err != nil {
		return err
	}
	c.follow(p, w)
	if c.Format == call.JSON {
		if names == nil {
			names = []string{}
		}
		return c.json(struct {
			Path  string   `json:"path"`
			Names []string `json:"names"`
			Stat  *stats   `json:"stat,omitempty"`
		}{p, names, c.statOf(&st)})
	}
	for i, n := range names {
		if names[i] = answer.Visible(n); c.Format == call.Plain {
			c.print("%s", names[i])
		}
	}
	if c.Format == call.Table {
		c.print("[%s]", strings.Join(names, ", "))
	}
	c.printStat(&st)
	return nil
}

func get(ctx context.Context, c *verbCall) error {
	p := c.args[0]
	var n zk.Node
	var w *zk.Watch
	var err error
	if c.watch {
		n, w, err = c.Conn.GetW(ctx, p)
	} else {
		n, err = c.Conn.Get(ctx, p)
	}
	if err != nil {
		return err
	}
	c.follow(p, w)
	switch {
	case c.file == "-":
		c.mu.Lock()
		defer c.mu.Unlock()
		_, err := c.Out.Write(n.Data)
		return err
	case c.file != "":
		return os.WriteFile(c.file, n.Data, 0o600)
	case c.Format == call.JSON:
		return c.json(struct {
			Path string `json:"path"`
			content
			Stat *stats `json:"stat"`
		}{p, contentOf(n.Data), statsOf(&n.Stat)})
	case n.Data == nil:
		c.print("null")
	case c.Terminal: // show control characters by their codes: the data may come from any client
		lines := strings.Split(string(n.Data), "\n")
		for i, l := range lines {
			lines[i] = visibleData(l)
		}
		c.print("%s", strings.Join(lines, "\n"))
	default:
		c.print("%s", n.Data)
	}
	c.printStat(&n.Stat)
	return nil
}

// visibleData is like answer.Visible, but leaves spaces as they are.
func visibleData(line string) string {
	parts := strings.Split(line, " ")
	for i, p := range parts {
		parts[i] = answer.Visible(p)
	}
	return strings.Join(parts, " ")
}

func stat(ctx context.Context, c *verbCall) error {
	p := c.args[0]
	var st *zk.Stat
	var w *zk.Watch
	var err error
	if c.watch {
		st, w, err = c.Conn.ExistsW(ctx, p)
	} else {
		st, err = c.Conn.Exists(ctx, p)
	}
	if err != nil {
		return err
	}
	c.follow(p, w)
	if st == nil {
		return refused{"Node does not exist: " + answer.Visible(p)}
	}
	if c.Format == call.JSON {
		return c.json(struct {
			Path string `json:"path"`
			*stats
		}{p, statsOf(st)})
	}
	c.stat = true
	c.printStat(st)
	return nil
}

// data() returns the data of a call: from the file, or else from operand n.
func (c *verbCall) data(n int) ([]byte, error) {
	switch {
	case c.file != "" && len(c.args) > n && n == 1 && c.Name() == "set":
		return nil, errors.New("give the data on the line or in FILE, not both")
	case c.file == "-":
		return io.ReadAll(c.input())
	case c.file != "":
		return os.ReadFile(c.file)
	case len(c.args) > n:
		return []byte(c.args[n]), nil
	case c.Name() == "set":
		return nil, errors.New("data is missing: set path data, or set -f FILE path")
	}
	return nil, nil
}

func set(ctx context.Context, c *verbCall) error {
	data, err := c.data(1)
	if err != nil {
		return err
	}
	st, err := c.Conn.Set(ctx, c.args[0], data, c.version)
	if err != nil {
		return err
	}
	if c.Format == call.JSON {
		return c.json(statsOf(&st))
	}
	c.printStat(&st)
	return nil
}

func create(ctx context.Context, c *verbCall) error {
	o := zk.Create{Path: c.args[0], TTL: c.ttl}
	acl := 2
	if c.file != "" {
		acl = 1 // with a file for the data, the second operand is the ACL
	}
	var err error
	if o.Data, err = c.data(1); err != nil {
		return err
	}
	if len(c.args) > acl {
		if o.ACL, err = parseACL(c.args[acl]); err != nil {
			return err
		}
	}
	ttl := c.Changed("ttl")
	switch {
	case c.boxed && (c.ephemeral || c.sequential || ttl), ttl && c.ephemeral:
		return errors.New("-c does not work with -s, -e or -t, and -t does not work with -e: " +
			"the server has no such nodes")
	case c.boxed:
		o.Mode = zk.Container
	case ttl && c.sequential:
		o.Mode = zk.PersistentSequentialTTL
	case ttl:
		o.Mode = zk.PersistentTTL
	case c.ephemeral && c.sequential:
		o.Mode = zk.EphemeralSequential
	case c.ephemeral:
		o.Mode = zk.Ephemeral
	case c.sequential:
		o.Mode = zk.PersistentSequential
	}
	made, err := c.Conn.Create(ctx, o)
	if err != nil {
		return err
	}
	if c.Format == call.JSON || c.Format == call.Plain {
		return c.path(made.Path)
	}
	c.tell("Created %s", answer.Visible(made.Path))
	return nil
}

func remove(ctx context.Context, c *verbCall) error { return c.Conn.Delete(ctx, c.args[0], c.version) }

func removeAll(ctx context.Context, c *verbCall) error {
	root := c.args[0]
	var paths []string
	if err := c.walk(ctx, root, nil, func(p string) error {
		paths = append(paths, p)
		return nil
	}); err != nil {
		return err
	}
	question := fmt.Sprintf("Remove %s and the %d nodes below it? [y/N] ", answer.Visible(root), len(paths)-1)
	if c.Terminal && !c.yes && len(paths) > 1 && !c.confirm(question) {
		return errors.New("nothing was removed")
	}
	for i := len(paths) - 1; i >= 0; i-- { // backwards: a node can be removed only after its children
		err := c.Conn.Delete(ctx, paths[i], -1)
		if errors.Is(err, zk.ErrNoNode) && i > 0 {
			continue // the node is already gone
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func countAll(ctx context.Context, c *verbCall) error {
	n, err := c.Conn.ChildrenCount(ctx, c.args[0])
	if err == nil {
		c.print("%d", n)
	}
	return err
}

func ephemerals(ctx context.Context, c *verbCall) error {
	prefix := "/"
	if len(c.args) > 0 {
		prefix = c.args[0]
	}
	paths, err := c.Conn.Ephemerals(ctx, prefix)
	if err != nil {
		return err
	}
	sort.Strings(paths)
	for i, p := range paths {
		paths[i] = answer.Visible(p)
	}
	c.print("[%s]", strings.Join(paths, ", "))
	return nil
}

func syncPath(ctx context.Context, c *verbCall) error {
	err := c.Conn.Sync(ctx, c.args[0])
	if err == nil {
		c.print("Sync is OK")
	}
	return err
}
