package offline

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/tree"
)

// Content is one of the two sides that Compare compares.
type Content struct {
	Name  string // as the user named it
	Zxid  int64
	Nodes map[string]*tree.Info

	// Wire says that the content was read through the protocol, which does not show containers and times to
	// live.
	Wire bool
}

// LoadContent reads a file or directory of any kind.
func LoadContent(path, logDir string) (*Content, error) {
	kind, err := FileKindOf(path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case ZooLog:
		return nil, fmt.Errorf("%s is a log: name the directory it is in", path)
	case ZooKeeperDir, ZooSnapshot:
		z, err := LoadZooKeeper(ZooKeeperOptions{From: path, LogDir: logDir})
		if err != nil {
			return nil, err
		}
		return contentOf(path, z.Zxid, z.Nodes.Tree), nil
	}
	s, err := ReadState(path)
	if err != nil {
		return nil, err
	}
	return contentOf(path, s.Zxid(), s.Tree()), nil
}

func contentOf(name string, zxid int64, t *tree.Tree) *Content {
	c := &Content{Name: name, Zxid: zxid, Nodes: map[string]*tree.Info{}}
	t.Walk(func(path string, i tree.Info) bool {
		c.Nodes[path] = &i
		return true
	})
	return c
}

// MaxDifferences is the largest number of differences that Compare returns.
const MaxDifferences = 100

// Compare returns the first differences, in the order of paths. If `ephemerals` is false, Compare ignores
// ephemeral nodes, and what their removal changes in their parents. In that case `ended` lists the ephemeral
// nodes that only one side has, because a restore may have ended their sessions. Of the node that names the
// members, Compare checks only the ACL, because every cluster writes its own data there. Compare ignores the
// counts of a quota, because a ZooKeeper counts again whenever it starts.
func Compare(a, b *Content, ephemerals bool) (diffs, ended []string) {
	emptied := map[string]*Content{} // parents of ended nodes, each with the side that had these nodes
	if !ephemerals {
		ended = append(endedIn(a, b, emptied), endedIn(b, a, emptied)...)
	}
	for _, path := range paths(a, b) {
		x, y := a.Nodes[path], b.Nodes[path]
		if !ephemerals && (isEphemeral(x) || isEphemeral(y)) {
			continue
		}
		switch had := emptied[path]; {
		case x == nil:
			diffs = append(diffs, fmt.Sprintf("%q: only in %s", path, b.Name))
			continue
		case y == nil:
			diffs = append(diffs, fmt.Sprintf("%q: only in %s", path, a.Name))
			continue
		// ignore the pzxid, because the end of a session has removed a child of the node
		case had == a && y.Pzxid > a.Zxid, had == b && x.Pzxid > b.Zxid:
			x, y = withPzxid(x, 0), withPzxid(y, 0)
		}
		for _, d := range compareNodes(path, x, y, a.Wire || b.Wire) {
			diffs = append(diffs, fmt.Sprintf("%q: %s", path, d))
		}
		if len(diffs) >= MaxDifferences {
			return diffs[:MaxDifferences], ended
		}
	}
	return diffs, ended
}

// endedIn returns the ephemeral nodes that the first side has and the second side lacks, and records their
// parents.
func endedIn(had, lacks *Content, parents map[string]*Content) (list []string) {
	for path, n := range had.Nodes {
		if isEphemeral(n) && lacks.Nodes[path] == nil {
			list = append(list, path)
			parents[path[:max(1, strings.LastIndexByte(path, '/'))]] = had
		}
	}
	slices.Sort(list)
	return list
}

func withPzxid(n *tree.Info, pzxid int64) *tree.Info {
	same := *n
	same.Pzxid = pzxid
	return &same
}

func paths(a, b *Content) []string {
	all := maps.Clone(a.Nodes)
	maps.Copy(all, b.Nodes)
	return slices.Sorted(maps.Keys(all))
}

func isEphemeral(n *tree.Info) bool {
	return n != nil && n.Kind == tree.EphemeralNode
}

func compareNodes(path string, x, y *tree.Info, wire bool) (diffs []string) {
	differ := func(what string, a, b any) { diffs = append(diffs, fmt.Sprintf("%s %v and %v", what, a, b)) }
	if !slices.Equal(x.ACL, y.ACL) {
		differ("ACL", showACL(x.ACL), showACL(y.ACL))
	}
	if path == config.Path {
		return diffs
	}
	counts := strings.HasPrefix(path, "/zookeeper/quota/") && strings.HasSuffix(path, "/zookeeper_stats")
	if !counts && (!bytes.Equal(x.Data, y.Data) || (x.Data == nil) != (y.Data == nil)) {
		differ("data", showData(x.Data), showData(y.Data))
	}
	for _, f := range []struct {
		name string
		a, b int64
	}{
		{"czxid", x.Czxid, y.Czxid}, {"mzxid", x.Mzxid, y.Mzxid}, {"pzxid", x.Pzxid, y.Pzxid},
		{"ctime", x.Ctime, y.Ctime}, {"mtime", x.Mtime, y.Mtime},
		{"version", int64(x.Version), int64(y.Version)}, {"children ever created", int64(x.Counter),
			int64(y.Counter)},
		{"ACL version", int64(x.Aversion), int64(y.Aversion)},
	} {
		if f.a == f.b {
			continue
		}
		if strings.HasSuffix(f.name, "zxid") {
			differ(f.name, fmt.Sprintf("0x%x", f.a), fmt.Sprintf("0x%x", f.b))
		} else {
			differ(f.name, f.a, f.b)
		}
	}
	a, b := showKind(x), showKind(y)
	if wire && !isEphemeral(x) && !isEphemeral(y) {
		return diffs
	}
	if a != b {
		differ("kind", a, b)
	}
	return diffs
}

func showKind(n *tree.Info) string {
	switch n.Kind {
	case tree.EphemeralNode:
		return fmt.Sprintf("ephemeral of 0x%x", uint64(n.EphemeralOwner))
	case tree.ContainerNode:
		return "container"
	case tree.TTLNode:
		return fmt.Sprintf("time to live %d ms", n.TTL)
	}
	return "plain"
}

func showACL(list []jute.ACL) string {
	var parts []string
	for _, a := range list {
		id := a.ID.ID
		if a.Scheme == "digest" { // an attacker could guess the password from this hash
			user, hash, _ := strings.Cut(id, ":")
			id = user + ":" + hash[:min(len(hash), 4)] + "…"
		}
		parts = append(parts, fmt.Sprintf("%s:%s:%d", a.Scheme, id, a.Perms))
	}
	return strings.Join(parts, ",")
}

func showData(b []byte) string {
	if b == nil {
		return "null"
	}
	if len(b) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}
