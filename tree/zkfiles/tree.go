package zkfiles

import (
	"errors"
	"fmt"
	"io"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// Tree is the data of a ZooKeeper: nodes and sessions. It begins as a snapshot, and Apply adds the
// transactions of the log.
type Tree struct {
	Nodes    *tree.Maker
	Sessions map[int64]int32 // timeouts in ms, by id
	Zxid     int64           // zxid of the newest transaction in it

	sum      uint64 // the digest of the tree
	odd      int    // nodes whose path is not ASCII
	expected *Digest
	exact    bool // the tree is exactly as it was at Zxid: no node has a later change
}

// NewTree returns a tree with the nodes that every ZooKeeper begins with.
func NewTree() *Tree {
	t := emptyTree()
	t.exact = true
	t.builtins()
	return t
}

func emptyTree() *Tree { return &Tree{Nodes: tree.NewMaker(), Sessions: map[int64]int32{}} }

// builtins() adds the nodes that exist without a create, if they are missing. Snapshots of releases before
// 3.5 have no /zookeeper/config.
func (t *Tree) builtins() {
	read := []jute.ACL{{Perms: jute.PermRead, ID: jute.WorldAnyone[0].ID}}
	for _, n := range []struct {
		path     string
		acl      []jute.ACL
		aversion int32
	}{{"/", jute.WorldAnyone, 0}, {"/zookeeper", jute.WorldAnyone, 0}, {"/zookeeper/quota", jute.WorldAnyone, 0},
		{"/zookeeper/config", read, -1}} {
		if _, there := t.Nodes.Get(n.path); !there {
			_ = t.put(n.path, &tree.Info{Data: []byte{}, ACL: n.acl, Stat: jute.Stat{Aversion: n.aversion}})
		}
	}
}

// Load reads a snapshot. zxid is the number in the snapshot's name. If zxid is negative, Load reads the zxid
// in the snapshot; Zxid is 0 if the snapshot holds none.
func Load(r *SnapshotReader, zxid int64) (*Tree, error) {
	t := emptyTree()
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
	if t.Zxid = zxid; zxid < 0 {
		t.Zxid = r.LastZxid
		if r.Digest != nil && r.Digest.Zxid > 0 {
			t.Zxid = r.Digest.Zxid
		}
	}
	// If the digest is of a later zxid, some nodes already have later changes. Without a digest, only the nodes
	// themselves can show such changes; see Whole.
	t.exact = t.expected == nil || t.expected.Zxid <= t.Zxid
	t.builtins()
	err := t.compare()
	if zxid < 0 && err != nil {
		t.exact, err = false, nil // the tree changed while ZooKeeper wrote the snapshot
	}
	return t, err
}

func (t *Tree) loadNode(path string, n *tree.Info, at int64) error {
	if _, there := t.Nodes.Get(path); there {
		return &FormatError{at, fmt.Errorf("node %q comes twice", path)}
	}
	if err := t.put(path, n); err != nil {
		return &FormatError{at, fmt.Errorf("node %q: %w", path, err)}
	}
	return nil
}

// Whole reports whether the tree certainly shows one moment. It is false for a snapshot that was written
// while the tree changed, without the log of these changes.
func (t *Tree) Whole() bool {
	whole := t.exact
	t.Nodes.Walk(func(_ string, n tree.Info) bool {
		whole = whole && max(n.Czxid, n.Mzxid, n.Pzxid) <= t.Zxid
		return whole
	})
	return whole
}

// put() makes a node.
func (t *Tree) put(path string, n *tree.Info) error {
	err := t.Nodes.Set(path, n)
	if err == nil {
		t.sum += digest(path, n)
		t.odd += odd(path)
	}
	return err
}

// change() calls by() to change the node at path, if there is such a node.
func (t *Tree) change(path string, by func(n *tree.Info)) error {
	n, there := t.Nodes.Get(path)
	if !there {
		return nil
	}
	t.sum -= digest(path, &n)
	by(&n)
	t.sum += digest(path, &n)
	return t.Nodes.Set(path, &n)
}
