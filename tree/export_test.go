package tree

import (
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// SetLimits lowers limits of a tree. A limit whose argument is 0 does not change.
func (t *Tree) SetLimits(children, listing, ephemerals, multiRead int) {
	for _, l := range []struct {
		to  *int
		max int
	}{{&t.lim.children, children}, {&t.lim.listing, listing}, {&t.lim.ephemerals, ephemerals},
		{&t.MultiRead, multiRead}} {
		if l.max > 0 {
			*l.to = l.max
		}
	}
}

// SetCounter sets how many children a node ever had, which is where sequential names come from. So a test
// need not create two billion nodes to see the counter wrap. SetCounter reports whether the node exists.
func (t *Tree) SetCounter(path string, cv int32) bool {
	n := t.At(path)
	if n == nil {
		return false
	}
	t.snap.keep(n)
	n.CV = cv
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
	var visit func(n *nodes.Node) (int, int64) // the function may recurse: trees of tests are shallow
	visit = func(n *nodes.Node) (below int, bytes int64) {
		path := nodes.PathOf(n)
		count++
		size += int64(len(path) + len(n.Data))
		refs[n.ACL]++
		if n.Null && n.Data != "" {
			bad("%s: null but not empty", path)
		}
		switch n.Kind {
		case nodes.EphemeralNode:
			owned++
			if l := t.Held.By[n.Owner].List(); int(n.Slot) >= len(l) || l[n.Slot] != n {
				bad("%s: not among the ephemerals of its session", path)
			}
			if n.Children() > 0 {
				bad("%s: ephemeral with children", path)
			}
		case nodes.ContainerNode, nodes.TTLNode:
			reapable++
			if int(n.Slot) >= len(t.reapable) || t.reapable[n.Slot] != n {
				bad("%s: not among the reapable", path)
			}
		}
		if hasQuotaText(n) {
			texts++
			if q, ok := t.quotaTexts[n]; !ok || q != readQuotaText(n.Data) {
				bad("%s: the tree has %v of its text (%v)", path, q, ok)
			}
		}
		if n.Name == limitsName && quotaOf(nodes.PathOf(n.Parent)) != "" {
			quotas[quotaOf(nodes.PathOf(n.Parent))] = true
		}
		if n.Dir == nil {
			return 0, 0
		}
		names, list := 0, jute.AppendInt(nil, int32(len(n.Dir.Nodes)))
		for i, c := range n.Dir.Nodes {
			if c.Parent != n || t.Below(n, c.Name) != c {
				bad("%s: child %q at %d is not found", path, c.Name, i)
			}
			names += 4 + len(c.Name)
			list = jute.AppendString(list, c.Name)
			b, y := visit(c)
			below, bytes = below+b+1, bytes+y+int64(len(c.Data))
		}
		if n.Dir.Names != names || n.Dir.Count != below || n.Dir.Bytes != bytes {
			bad("%s: names %d is %d, count %d is %d, bytes %d is %d", path, n.Dir.Names, names, n.Dir.Count, below,
				n.Dir.Bytes, bytes)
		}
		all := []jute.ID{{Scheme: "super"}}
		if got, _ := t.AppendChildren(nil, all, path); string(got) != string(list) {
			bad("%s: stale listing", path)
		}
		return below, bytes
	}
	visit(t.Root)
	inLists := 0
	for session, h := range t.Held.By {
		inLists += len(h.Nodes)
		paths := 0
		for _, n := range h.Nodes {
			paths += 4 + nodes.PathLen(n)
		}
		if h.Slot >= len(t.Held.Owners) || t.Held.Owners[h.Slot] != h {
			bad("session %d: not where it stands among the owners", session)
		}
		if paths != h.Paths || len(h.Nodes) == 0 {
			bad("session %d: %d nodes, paths %d are %d", session, len(h.Nodes), h.Paths, paths)
		}
	}
	if len(t.Held.Owners) != len(t.Held.By) {
		bad("%d owners are %d", len(t.Held.Owners), len(t.Held.By))
	}
	if count != t.count || size != t.size || owned != t.Held.Count || inLists != owned ||
		reapable != len(t.reapable) {
		bad("count %d is %d, size %d is %d, ephemerals %d, %d are %d, reapable %d is %d", t.count, count, t.size,
			size, t.Held.Count, inLists, owned, len(t.reapable), reapable)
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
		if t.At(nodes.PathOf(n)) != n || *again != *k {
			bad("%s: contenders %v are %v", nodes.PathOf(n), *k, *again)
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

// SetVersions sets the versions of a node, for example close to the highest number.
func (t *Tree) SetVersions(path string, version, aversion int32) {
	n := t.At(path)
	n.Version, n.Aversion = version, aversion
}

// MaxChunk is the number of bytes at which a chunk of a snapshot ends.
const MaxChunk = maxChunk

// Marked counts the nodes from which the snapshot needs nothing more. It also counts the deleted nodes that
// the snapshot must still write.
func (s *Snapshot) Marked() (marked, gone int) {
	var visit func(n *nodes.Node)
	visit = func(n *nodes.Node) { // the function may recurse: trees of tests are shallow
		if n.Mark == s.mark {
			marked++
		}
		if n.Dir != nil {
			for _, c := range n.Dir.Nodes {
				visit(c)
			}
		}
	}
	visit(s.tree.Root)
	return marked, len(s.deleted)
}

// SpoilData changes the data of a node without the tree's knowledge.
func (t *Tree) SpoilData(path, data string) { t.At(path).Data = data }
