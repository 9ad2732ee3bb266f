package zkfiles

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// Tree is the data of a ZooKeeper: nodes and sessions. It begins as a snapshot, and Apply brings
// it forward.
type Tree struct {
	Nodes    map[string]*tree.Info // by path; the root is "/"
	Sessions map[int64]int32       // timeouts in ms, by id
	Zxid     int64                 // of the newest transaction in it

	acls       map[string][]jute.ACL
	ephemerals map[int64]map[string]struct{}
	quotas     map[string]struct{} // paths with limits
	counted    map[string]struct{} // paths whose counts were begun in the log

	sum      uint64 // digest
	odd      int    // nodes whose path is not ASCII
	expected *Digest
	exact    bool // the tree is that of Zxid, no longer one caught while it changed
}

// NewTree returns a tree with the nodes that every ZooKeeper begins with.
func NewTree() *Tree {
	t := emptyTree()
	t.exact = true
	t.builtins()
	return t
}

func emptyTree() *Tree {
	return &Tree{Nodes: map[string]*tree.Info{}, Sessions: map[int64]int32{}, acls: map[string][]jute.ACL{},
		ephemerals: map[int64]map[string]struct{}{}, quotas: map[string]struct{}{}, counted: map[string]struct{}{}}
}

// builtins adds what is missing of the nodes that were never created.
// Snapshots of releases before 3.5 have no /zookeeper/config.
func (t *Tree) builtins() {
	read := []jute.ACL{{Perms: jute.PermRead, ID: jute.WorldAnyone[0].ID}}
	for _, n := range []struct {
		path     string
		acl      []jute.ACL
		aversion int32
	}{{"/", jute.WorldAnyone, 0}, {"/zookeeper", jute.WorldAnyone, 0}, {"/zookeeper/quota", jute.WorldAnyone, 0},
		{"/zookeeper/config", read, -1}} {
		if t.Nodes[n.path] == nil {
			t.put(n.path, &tree.Info{Data: []byte{}, ACL: t.intern(n.acl), Stat: jute.Stat{Aversion: n.aversion}})
		}
	}
}

// Load reads a snapshot. zxid is the one in its name.
func Load(r *SnapshotReader, zxid int64) (*Tree, error) {
	t := emptyTree()
	t.Zxid = zxid
	for {
		at := r.Offset()
		path, n, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = t.loadNode(path, n, at)
		}
		if err != nil {
			return nil, err
		}
	}
	t.Sessions = r.Sessions
	t.expected = r.Digest
	if r.Digest == nil || r.Digest.Version != digestVersion {
		t.expected = nil
	}
	// Without a digest nothing tells how far behind zxid the changes go that
	// some of the nodes have.
	t.exact = t.expected == nil || t.expected.Zxid <= zxid
	t.builtins()
	return t, t.compare()
}

func (t *Tree) loadNode(path string, n *tree.Info, at int64) error {
	switch {
	case path != "/" && (path[0] != '/' || strings.HasSuffix(path, "/")):
		return &FormatError{at, fmt.Errorf("impossible path %q", path)}
	case t.Nodes[path] != nil:
		return &FormatError{at, fmt.Errorf("node %q comes twice", path)}
	case path != "/" && t.Nodes[Parent(path)] == nil:
		return &FormatError{at, fmt.Errorf("node %q has no parent", path)}
	}
	n.ACL = t.intern(n.ACL)
	t.put(path, n)
	return nil
}

// Whole reports whether the tree is known to be that of one moment. It is false for a snapshot
// that was written while changes went on and lacks its log.
func (t *Tree) Whole() bool {
	if !t.exact {
		return false
	}
	for _, n := range t.Nodes {
		if n.Czxid > t.Zxid || n.Mzxid > t.Zxid || n.Pzxid > t.Zxid {
			return false
		}
	}
	return true
}

// Parent returns the path of a node's parent.
func Parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// intern returns the one copy of a list, so that a million nodes share it.
func (t *Tree) intern(acl []jute.ACL) []jute.ACL {
	if len(acl) == 0 {
		acl = jute.WorldAnyone
	}
	key := jute.AppendACL(nil, acl)
	if known, ok := t.acls[string(key)]; ok {
		return known
	}
	t.acls[string(key)] = acl
	return acl
}

func (t *Tree) put(path string, n *tree.Info) {
	t.Nodes[path] = n
	t.add(path, n)
	t.odd += odd(path)
	if id := n.EphemeralOwner; n.Kind == tree.EphemeralNode {
		if t.ephemerals[id] == nil {
			t.ephemerals[id] = map[string]struct{}{}
		}
		t.ephemerals[id][path] = struct{}{}
	}
	if p, ok := quotaOf(path, limitsName); ok {
		t.quotas[p] = struct{}{}
	}
}

func (t *Tree) drop(path string, n *tree.Info) {
	delete(t.Nodes, path)
	t.sub(path, n)
	t.odd -= odd(path)
	if id := n.EphemeralOwner; n.Kind == tree.EphemeralNode {
		delete(t.ephemerals[id], path)
		if len(t.ephemerals[id]) == 0 {
			delete(t.ephemerals, id)
		}
	}
	if p, ok := quotaOf(path, limitsName); ok {
		delete(t.quotas, p)
	}
}

// add and sub keep the digest; a node is taken out of it before it changes.
func (t *Tree) add(path string, n *tree.Info) { t.sum += digest(path, n) }
func (t *Tree) sub(path string, n *tree.Info) { t.sum -= digest(path, n) }

// compare compares the digest with the one that is expected for this zxid.
func (t *Tree) compare() error {
	e := t.expected
	if e == nil || e.Zxid > t.Zxid {
		return nil
	}
	t.expected, t.exact = nil, true
	if e.Zxid == t.Zxid && e.Zxid != 0 && e.Sum != t.sum && t.odd == 0 {
		return fmt.Errorf("the tree of zxid 0x%x has the digest %x, its ZooKeeper had %x: a file was changed or "+
			"exchanged", t.Zxid, t.sum, e.Sum)
	}
	return nil
}

// Paths returns every path, sorted: parents before their children.
func (t *Tree) Paths() []string { return slices.Sorted(maps.Keys(t.Nodes)) }

// ACLs returns every list in use.
func (t *Tree) ACLs() [][]jute.ACL {
	used := map[*jute.ACL]bool{}
	var all [][]jute.ACL
	for _, n := range t.Nodes {
		if first := &n.ACL[0]; !used[first] {
			used[first] = true
			all = append(all, n.ACL)
		}
	}
	slices.SortFunc(all, func(a, b []jute.ACL) int {
		return strings.Compare(string(jute.AppendACL(nil, a)), string(jute.AppendACL(nil, b)))
	})
	return all
}
