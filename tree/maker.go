package tree

import (
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// New returns a tree with the nodes that every tree has.
func New() *Tree {
	t := newTree()
	world := t.acls.Intern(jute.WorldAnyone)
	t.Root = &nodes.Node{State: nodes.State{ACL: world}}
	t.acls.Retain(world)
	t.count, t.size = 1, 1
	zk := t.builtin(t.Root, "zookeeper", world)
	t.builtin(zk, "config",
		t.acls.Intern([]jute.ACL{{Perms: jute.PermRead, ID: jute.WorldAnyone[0].ID}})).Aversion = -1
	t.builtin(zk, "quota", world)
	return t
}

func (t *Tree) builtin(parent *nodes.Node, name string, acl *acl.Set) *nodes.Node {
	n := &nodes.Node{State: nodes.State{ACL: acl}, Name: name, Parent: parent}
	t.link(n, -1)
	return n
}

// Maker builds a tree from imported nodes. Nodes may be added, changed and removed in any order that keeps
// parents before their children; Finish checks the result.
type Maker struct{ *Tree }

// NewMaker returns a Maker without nodes. The root must be set first.
func NewMaker() *Maker { return &Maker{newTree()} }

// Set makes a node, or changes all of it but its kind. It ignores the lengths, the number of children and the
// cversion in i's Stat, because they follow from the tree. Set keeps i.Data without a copy.
func (m *Maker) Set(path string, i *nodes.Info) error {
	switch {
	case len(path) > maxLoadPath || !bounds.WellFormed(path):
		return errors.New("illegal path")
	case m.Root == nil && path != "/":
		return errors.New("no root")
	case len(i.ACL) == 0:
		return errors.New("no ACL")
	}
	s := nodes.State{
		Data: nodes.StringOf(i.Data), Null: i.Data == nil, ACL: m.acls.Intern(i.ACL),
		Czxid: i.Czxid, Mzxid: i.Mzxid, Pzxid: i.Pzxid, Ctime: i.Ctime, Mtime: i.Mtime,
		Version: i.Version, CV: i.Counter, Aversion: i.Aversion, Kind: i.Kind,
	}
	switch i.Kind {
	case nodes.EphemeralNode:
		s.Owner = i.EphemeralOwner
	case nodes.TTLNode:
		s.Owner = i.TTL
	}
	n := m.At(path)
	if n == nil {
		dir, _, _ := bounds.SplitPath(path)
		return m.place(m.At(dir), path, s)
	}
	m.setData(n, s.Data, s.Null)
	m.acls.Retain(s.ACL)
	m.acls.Release(n.ACL)
	n.State = s
	return nil
}

// Remove removes a node and all nodes below it, and calls gone() for each.
func (m *Maker) Remove(path string, gone func(path string, i *nodes.Info)) {
	if n := m.At(path); n != nil && n.Parent != nil {
		m.remove(n, gone)
	}
}

func (m *Maker) remove(n *nodes.Node, gone func(path string, i *nodes.Info)) {
	for below := n.Children(); below > 0; below-- {
		m.remove(n.Dir.Nodes[below-1], gone)
	}
	i := n.Info()
	gone(nodes.PathOf(n), &i)
	m.unlink(n)
}

// Recount writes the true counts into the nodes that hold the counts of quotas.
func (m *Maker) Recount() {
	for n := range m.quotaTexts {
		m.fillStats(n)
	}
}

// Finish returns the tree, with zxid as its newest change. It returns an error if a Loader would refuse the
// tree, or if a node takes more than `most` bytes.
func (m *Maker) Finish(zxid int64, most int) (_ *Tree, err error) {
	m.Root.Walk(nil, func(path string, n *nodes.Node) bool {
		size := len(path) + len(n.Data) + len(n.ACL.Key())
		switch {
		case n.Kind == nodes.EphemeralNode && n.Children() > 0:
			err = errors.New("it is ephemeral and has children")
		case size > most:
			err = fmt.Errorf("it takes %d bytes, but a server's snapshots allow at most %d", size, most)
		default:
			err = sane(&n.State, zxid)
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
