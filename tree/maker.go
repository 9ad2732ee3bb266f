package tree

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/tree/bounds"
)

// Maker builds a tree from imported nodes. Nodes may be added, changed and removed in any order that keeps
// parents before their children; Finish checks the result.
type Maker struct{ *Tree }

// NewMaker returns a Maker without nodes. The root must be set first.
func NewMaker() *Maker { return &Maker{newTree()} }

// Set makes a node, or changes all of it but its kind. It ignores the lengths, the number of children and the
// cversion in i's Stat, because they follow from the tree. Set keeps i.Data without a copy.
func (m *Maker) Set(path string, i *Info) error {
	switch {
	case len(path) > maxLoadPath || !bounds.WellFormed(path):
		return errors.New("illegal path")
	case m.root == nil && path != "/":
		return errors.New("no root")
	case len(i.ACL) == 0:
		return errors.New("no ACL")
	}
	s := state{
		data: stringOf(i.Data), null: i.Data == nil, acl: m.acls.Intern(i.ACL),
		czxid: i.Czxid, mzxid: i.Mzxid, pzxid: i.Pzxid, ctime: i.Ctime, mtime: i.Mtime,
		version: i.Version, cv: i.Counter, aversion: i.Aversion, kind: i.Kind,
	}
	switch i.Kind {
	case EphemeralNode:
		s.owner = i.EphemeralOwner
	case TTLNode:
		s.owner = i.TTL
	}
	n := m.find(path)
	if n == nil {
		dir, _, _ := bounds.SplitPath(path)
		return m.place(m.find(dir), path, s)
	}
	m.setData(n, s.data, s.null)
	m.acls.Retain(s.acl)
	m.acls.Release(n.acl)
	n.state = s
	return nil
}

// Remove takes away a node and all below it, and calls gone for each.
func (m *Maker) Remove(path string, gone func(path string, i *Info)) {
	if n := m.find(path); n != nil && n.parent != nil {
		m.remove(n, gone)
	}
}

func (m *Maker) remove(n *node, gone func(path string, i *Info)) {
	for below := n.children(); below > 0; below-- {
		m.remove(n.dir.nodes[below-1], gone)
	}
	i := n.info()
	gone(pathOf(n), &i)
	m.unlink(n)
}

// Recount writes the true counts into the nodes that hold the counts of quotas.
func (m *Maker) Recount() {
	for n := range m.quotaTexts {
		m.fillStats(n)
	}
}

// Finish returns the tree, with zxid as its newest change. It returns an error for a tree that a Loader would
// refuse, and for a node that takes more than most bytes.
func (m *Maker) Finish(zxid int64, most int) (_ *Tree, err error) {
	m.root.walk(nil, func(path string, n *node) bool {
		size := len(path) + len(n.data) + len(n.acl.Key())
		switch {
		case n.kind == EphemeralNode && n.children() > 0:
			err = errors.New("it is ephemeral and has children")
		case size > most:
			err = fmt.Errorf("it takes %d bytes, more than the %d that a server's snapshots have room for", size, most)
		default:
			err = n.sane(zxid)
		}
		if err != nil {
			err = fmt.Errorf("node %q: %w", path, err)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	m.zxid, m.hash = zxid, 0
	return m.Tree, m.complete()
}

// place makes a node of the given state under parent, which is nil for the root.
func (t *Tree) place(parent *node, path string, s state) error {
	if path == "/" {
		if t.root != nil {
			return errors.New("two roots")
		}
		if s.kind != PlainNode {
			return errors.New("the root is no plain node")
		}
		t.root = &node{state: s}
		t.acls.Retain(s.acl)
		t.count, t.size = 1, 1+int64(len(s.data))
		return nil
	}
	_, name, _ := bounds.SplitPath(path)
	switch {
	case parent == nil:
		return errors.New("no parent")
	case t.child(parent, name) != nil:
		return errors.New("the same path twice")
	}
	t.link(&node{state: s, name: strings.Clone(name), parent: parent}, -1)
	return nil
}

// complete checks that the nodes are there which every tree has, and forgets ACLs that no node has.
func (t *Tree) complete() error {
	for _, path := range []string{"/", quotaPath, configPath} {
		if t.root == nil || t.find(path) == nil {
			return fmt.Errorf("snapshot: no %s", path)
		}
	}
	t.acls.Sweep()
	return nil
}
