package tree

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/digest"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// maxLoadPath bounds the length of a path, and so the depth of a tree, that damaged input can ask for. No
// server has ever accepted such a long path.
const maxLoadPath = 4 * bounds.MaxPath

// Loader builds a tree from the chunks of a snapshot, in the order in which they were written. It
// trusts nothing: input that is not a snapshot yields an error, never a panic and never a
// half-built tree. It cannot be used after an error.
type Loader struct {
	tree  *Tree
	head  bool
	end   bool
	zxid  int64
	nodes int64 // number of nodes according to the header
	acls  []*acl.Set
	path  []byte // path of the previous node

	// dir is the path of `parent`. Most nodes have the same parent as the previous node.
	dir    string
	parent *nodes.Node

	live *Tree // no node's counter may be below its counter in this tree; nil: no such tree

	each func(path string, i *nodes.Info) error // called for each node; nil: a tree is built instead
	read int64                                  // number of nodes passed to each()
}

// NewLoader returns an empty Loader.
func NewLoader() *Loader { return &Loader{tree: newTree()} }

// NewReader returns a Loader that builds no tree: it calls each() for every node, in the order of the stream,
// and Done takes the place of Finish. The Info lacks the number of children and the cversion, which follow
// from other nodes.
func NewReader(each func(path string, i *nodes.Info) error) *Loader {
	return &Loader{tree: newTree(), each: each}
}

// Done checks that the stream has its end and no node is missing.
func (l *Loader) Done() error {
	if !l.end || l.read != l.nodes {
		return errors.New("snapshot: it has no end, or nodes are missing")
	}
	return nil
}

// Add reads one chunk, as one call of Snapshot.Append produced it.
func (l *Loader) Add(b []byte) error {
	d := jute.NewDecoder(b)
	for len(d.Rest()) > 0 {
		at := d.Offset()
		if err := l.record(&d); err != nil {
			return fmt.Errorf("snapshot record at byte %d of the chunk: %w", at, err)
		}
	}
	return nil
}

func (l *Loader) record(d *jute.Decoder) error {
	kind := d.Byte()
	if l.end {
		return errors.New("bytes follow the end")
	}
	if !l.head && kind != recHeader {
		return errors.New("no header")
	}
	switch kind {
	case recHeader:
		return l.header(d)
	case recACL:
		return l.acl(d)
	case recNode:
		return l.node(d)
	case recEnd:
		l.end = true
		if n := d.Long(); d.Err() == nil && n != l.nodes {
			return fmt.Errorf("it ends with %d nodes, but the header says %d", n, l.nodes)
		}
		return d.Err()
	}
	return fmt.Errorf("unknown kind %q", kind)
}

func (l *Loader) header(d *jute.Decoder) error {
	version := d.Byte()
	l.zxid = d.Long()
	hash := d.Long()
	l.nodes = d.Long()
	switch {
	case d.Err() != nil:
		return d.Err()
	case l.head:
		return errors.New("second header")
	case version != snapshotVersion:
		return fmt.Errorf("version %d is not known", version)
	case l.zxid < 0:
		return fmt.Errorf("zxid %d", l.zxid)
	}
	l.head = true
	l.tree.zxid, l.tree.hash = l.zxid, digest.Sum(hash)
	return nil
}

func (l *Loader) acl(d *jute.Decoder) error {
	list, nullID := d.ACL()
	switch {
	case d.Err() != nil:
		return d.Err()
	case len(list) == 0 || nullID:
		return errors.New("no ACL")
	}
	known := l.tree.acls.Len()
	a := l.tree.acls.Intern(list)
	if l.tree.acls.Len() == known {
		return errors.New("an ACL occurs twice")
	}
	l.acls = append(l.acls, a)
	return nil
}

func (l *Loader) node(d *jute.Decoder) error {
	shared := d.Int()
	rest := d.Buffer()
	data := d.Buffer()
	id := uint32(d.Int())
	s := nodes.State{
		Data: string(data), Null: data == nil,
		Czxid: d.Long(), Mzxid: d.Long(), Pzxid: d.Long(), Ctime: d.Long(), Mtime: d.Long(), Owner: d.Long(),
		Version: d.Int(), CV: d.Int(), Aversion: d.Int(), Kind: nodes.NodeKind(d.Byte()),
	}
	if d.Err() != nil {
		return d.Err()
	}
	if int64(id) >= int64(len(l.acls)) {
		return fmt.Errorf("ACL %d is not known", id)
	}
	if shared < 0 || int(shared) > len(l.path) {
		return errors.New("its path shares more bytes with the previous path than the previous path has")
	}
	l.path = append(l.path[:shared], rest...)
	s.ACL = l.acls[id]
	path := nodes.StringOf(l.path)
	switch {
	case len(path) > maxLoadPath:
		return errors.New("the path is too long")
	case !bounds.WellFormed(path):
		return errors.New("illegal path")
	}
	if err := sane(&s, l.zxid); err != nil {
		return err
	}
	if l.each == nil {
		s.CV = l.counter(path, s.CV)
		return l.place(path, s)
	}
	l.read++
	info := (&nodes.Node{State: s}).Info()
	return l.each(strings.Clone(path), &info)
}

// sane() checks the fields of a node, in a tree whose newest change is zxid.
func sane(s *nodes.State, zxid int64) error {
	if s.Czxid < 0 || s.Mzxid < s.Czxid || s.Pzxid < s.Czxid || s.Mzxid > zxid || s.Pzxid > zxid {
		return fmt.Errorf("zxids %d, %d, %d are out of order", s.Czxid, s.Mzxid, s.Pzxid)
	}
	ok := false
	switch s.Kind {
	case nodes.PlainNode, nodes.ContainerNode:
		ok = s.Owner == 0
	case nodes.EphemeralNode:
		ok = s.Owner != 0
	case nodes.TTLNode:
		ok = s.Owner > 0 && s.Owner <= jute.MaxTTL
	}
	if !ok {
		return fmt.Errorf("owner %#x of a node of kind %d is impossible", s.Owner, s.Kind)
	}
	return nil
}

// place() puts a node under its parent.
func (l *Loader) place(path string, s nodes.State) error {
	t := l.tree
	if path == "/" {
		return t.place(nil, path, s)
	}
	if t.Root == nil {
		return errors.New("no root")
	}
	dir, _, _ := bounds.SplitPath(path)
	if l.parent == nil || dir != l.dir {
		l.dir, l.parent = strings.Clone(dir), t.At(dir)
	}
	if l.parent != nil && l.parent.Kind == nodes.EphemeralNode {
		return errors.New("the parent is ephemeral")
	}
	return t.place(l.parent, path, s)
}

// Finish checks that nothing is missing and returns the tree.
func (l *Loader) Finish() (*Tree, error) {
	t := l.tree
	switch {
	case !l.end:
		return nil, errors.New("snapshot: it has no end")
	case int64(t.count) != l.nodes:
		return nil, fmt.Errorf("snapshot: it has %d nodes, but the header says %d", t.count, l.nodes)
	}
	if err := t.complete(); err != nil {
		return nil, err
	}
	t.unreverse()
	l.tree = nil
	return t, nil
}

// unreverse() reverses the order of the directories, because a snapshot walks them from the end. So a server
// that loaded a snapshot lists and walks nodes in the same order as the server that wrote it, unless there
// were writes during the snapshot.
func (t *Tree) unreverse() {
	todo := []*nodes.Node{t.Root}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n.Dir == nil {
			continue
		}
		n.Dir.Reverse()
		for _, c := range n.Dir.Nodes {
			if c.Dir != nil {
				todo = append(todo, c)
			}
		}
	}
}

// place() makes a node of the given state under `parent`, which is nil for the root.
func (t *Tree) place(parent *nodes.Node, path string, s nodes.State) error {
	if path == "/" {
		if t.Root != nil {
			return errors.New("two roots")
		}
		if s.Kind != nodes.PlainNode {
			return errors.New("the root is not a plain node")
		}
		t.Root = &nodes.Node{State: s}
		t.acls.Retain(s.ACL)
		t.count, t.size = 1, 1+int64(len(s.Data))
		return nil
	}
	_, name, _ := bounds.SplitPath(path)
	switch {
	case parent == nil:
		return errors.New("no parent")
	case t.Below(parent, name) != nil:
		return errors.New("a path occurs twice")
	}
	t.link(&nodes.Node{State: s, Name: strings.Clone(name), Parent: parent}, -1)
	return nil
}

// complete() checks that t has the nodes that every tree has, and drops the ACLs that no node has.
func (t *Tree) complete() error {
	for _, path := range []string{"/", quotaPath, configPath} {
		if t.Root == nil || t.At(path) == nil {
			return fmt.Errorf("snapshot: no %s", path)
		}
	}
	t.acls.Sweep()
	return nil
}
