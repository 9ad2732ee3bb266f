package tree

import (
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
)

// SetLimits lowers limits of a tree; 0 leaves one as it is.
func (t *Tree) SetLimits(children, listing, ephemerals, multiRead int) {
	for _, l := range []struct {
		to  *int
		max int
	}{{&t.lim.children, children}, {&t.lim.listing, listing}, {&t.lim.ephemerals, ephemerals},
		{&t.multiRead, multiRead}} {
		if l.max > 0 {
			*l.to = l.max
		}
	}
}

// SetCounter sets how many children a node ever had, from which sequential names are made. So a test need not
// create two billion nodes to see the counter wrap. It reports whether the node exists.
func (t *Tree) SetCounter(path string, cv int32) bool {
	n := t.find(path)
	if n == nil {
		return false
	}
	t.snap.keep(n)
	n.cv = cv
	const mixCounter = 7 // a kind of change that no client makes
	t.mix(mixCounter, path, n)
	return true
}

// Zxid returns the zxid of the newest change.
func (t *Tree) Zxid() int64 { return t.zxid }

// Verify counts again what the tree derives from its nodes, and returns an error if something differs.
func (t *Tree) Verify() error {
	var errs []string
	bad := func(format string, args ...any) {
		if len(errs) < 10 {
			errs = append(errs, fmt.Sprintf(format, args...))
		}
	}
	count, size, owned, reapable, texts := 0, int64(0), 0, 0, 0
	refs := map[*acl.Set]int{}
	quotas := map[string]bool{}
	var visit func(n *node) (int, int64) // it may recurse: trees of tests are shallow
	visit = func(n *node) (below int, bytes int64) {
		path := pathOf(n)
		count++
		size += int64(len(path) + len(n.data))
		refs[n.acl]++
		if n.null && n.data != "" {
			bad("%s: null but not empty", path)
		}
		switch n.kind {
		case EphemeralNode:
			owned++
			if l := t.held.by[n.owner].list(); int(n.slot) >= len(l) || l[n.slot] != n {
				bad("%s: not among the ephemerals of its session", path)
			}
			if n.children() > 0 {
				bad("%s: ephemeral with children", path)
			}
		case ContainerNode, TTLNode:
			reapable++
			if int(n.slot) >= len(t.reapable) || t.reapable[n.slot] != n {
				bad("%s: not among the reapable", path)
			}
		}
		if hasQuotaText(n) {
			texts++
			if q, ok := t.quotaTexts[n]; !ok || q != readQuotaText(n.data) {
				bad("%s: the tree has %v of its text (%v)", path, q, ok)
			}
		}
		if n.name == limitsName && quotaOf(pathOf(n.parent)) != "" {
			quotas[quotaOf(pathOf(n.parent))] = true
		}
		if n.dir == nil {
			return 0, 0
		}
		names, list := 0, jute.AppendInt(nil, int32(len(n.dir.nodes)))
		for i, c := range n.dir.nodes {
			if c.parent != n || t.child(n, c.name) != c {
				bad("%s: child %q at %d is not found", path, c.name, i)
			}
			names += 4 + len(c.name)
			list = jute.AppendString(list, c.name)
			b, y := visit(c)
			below, bytes = below+b+1, bytes+y+int64(len(c.data))
		}
		if n.dir.names != names || n.dir.count != below || n.dir.bytes != bytes {
			bad("%s: names %d is %d, count %d is %d, bytes %d is %d", path, n.dir.names, names, n.dir.count, below,
				n.dir.bytes, bytes)
		}
		if string(n.dir.appendList(nil)) != string(list) {
			bad("%s: stale listing", path)
		}
		return below, bytes
	}
	visit(t.root)
	inLists := 0
	for session, h := range t.held.by {
		inLists += len(h.nodes)
		paths := 0
		for _, n := range h.nodes {
			paths += 4 + pathLen(n)
		}
		if h.slot >= len(t.held.owners) || t.held.owners[h.slot] != h {
			bad("session %d: not where it stands among the owners", session)
		}
		if paths != h.paths || len(h.nodes) == 0 {
			bad("session %d: %d nodes, paths %d are %d", session, len(h.nodes), h.paths, paths)
		}
	}
	if len(t.held.owners) != len(t.held.by) {
		bad("%d owners are %d", len(t.held.owners), len(t.held.by))
	}
	if count != t.count || size != t.size || owned != t.held.count || inLists != owned ||
		reapable != len(t.reapable) {
		bad("count %d is %d, size %d is %d, ephemerals %d, %d are %d, reapable %d is %d", t.count, count, t.size,
			size, t.held.count, inLists, owned, len(t.reapable), reapable)
	}
	var aclBytes int64
	for a, n := range refs {
		aclBytes += int64(len(a.Key()))
		if a.Nodes() != n || t.acls.Intern(a.List()) != a {
			bad("ACL %v: %d references are %d", a.List(), a.Nodes(), n)
		}
	}
	if len(refs) != t.acls.Len() || aclBytes != t.ACLBytes() || len(quotas) != t.quotas {
		bad("%d ACLs are %d, their bytes %d are %d, %d quotas are %d", t.acls.Len(), len(refs), t.ACLBytes(), aclBytes,
			t.quotas, len(quotas))
	}
	if texts != len(t.quotaTexts) {
		bad("%d texts of quotas are %d", len(t.quotaTexts), texts)
	}
	for n, k := range t.kins {
		again := (&Tree{}).kinsOf(n)
		if t.find(pathOf(n)) != n || *again != *k {
			bad("%s: contenders %v are %v", pathOf(n), *k, *again)
		}
	}
	if t.undo != nil {
		bad("a multi left something behind")
	}
	if errs != nil {
		return fmt.Errorf("%q", errs)
	}
	return nil
}

// SetVersions sets the counters of a node, for example close to their ends.
func (t *Tree) SetVersions(path string, version, aversion int32) {
	n := t.find(path)
	n.version, n.aversion = version, aversion
}

// MaxChunk is the number of bytes at which a chunk of a snapshot ends.
const MaxChunk = maxChunk

// Marked counts the nodes from which the snapshot needs nothing more, and the gone nodes that it has yet to
// write.
func (s *Snapshot) Marked() (marked, gone int) {
	var visit func(n *node)
	visit = func(n *node) { // it may recurse: trees of tests are shallow
		if n.mark == s.mark {
			marked++
		}
		if n.dir != nil {
			for _, c := range n.dir.nodes {
				visit(c)
			}
		}
	}
	visit(s.tree.root)
	return marked, len(s.deleted)
}

// SpoilData changes the data of a node without the tree's knowledge.
func (t *Tree) SpoilData(path, data string) { t.find(path).data = data }
