package zk

import (
	"context"
	"errors"
	"iter"
	"path"
	"strings"
	"sync"

	"github.com/zlockd/zlockd/jute"
)

// Node is a node's content.
type Node struct {
	Data []byte
	Stat Stat
}

// The functions below build requests; Conn and Pipe send them.

func newCreate(c chroot, op Create) *Reply[Created] {
	r := &Reply[Created]{}
	b := r.begin(op.code(), op.Path, len(op.Path)+len(op.Data)+64)
	r.end(op.append(b, c))
	r.parse = func(d *jute.Decoder) { r.v = readCreated(d, c) }
	return r
}

// pathRead builds a request that has a path and, for some operations, a flag that sets a watch.
func (r *call) pathRead(c chroot, op jute.OpCode, path string, kind watchKind) {
	full := c.full(path)
	b := jute.AppendString(r.begin(op, path, len(full)), full)
	switch op {
	case jute.OpGetData, jute.OpExists, jute.OpGetChildren2:
		b = jute.AppendBool(b, kind != noWatch)
	}
	r.end(b)
	r.repeat = true
	r.arms, r.kind, r.target = kind != noWatch, kind, full
}

func newGet(c chroot, path string, kind watchKind) *Reply[Node] {
	r := &Reply[Node]{}
	r.pathRead(c, jute.OpGetData, path, kind)
	r.parse = func(d *jute.Decoder) { r.v = Node{Data: clone(d.Buffer()), Stat: d.Stat()} }
	return r
}

// clone() copies data. Nil stays nil, and empty stays empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

func newExists(c chroot, path string, kind watchKind) *Reply[*Stat] {
	r := &Reply[*Stat]{}
	r.pathRead(c, jute.OpExists, path, kind)
	r.absent = true
	r.parse = func(d *jute.Decoder) {
		st := d.Stat()
		r.v = &st
	}
	return r
}

func newNames(c chroot, path string, kind watchKind) *Reply[Names] {
	r := &Reply[Names]{}
	r.pathRead(c, jute.OpGetChildren2, path, kind)
	r.keep = true
	r.parse = func(d *jute.Decoder) { r.v = readNames(d) }
	return r
}

func newSync(c chroot, path string) *Reply[struct{}] {
	r := &Reply[struct{}]{}
	r.pathRead(c, jute.OpSync, path, noWatch)
	return r
}

func newSet(c chroot, op SetData) *Reply[Stat] {
	r := &Reply[Stat]{}
	r.end(op.append(r.begin(jute.OpSetData, op.Path, len(op.Path)+len(op.Data)+16), c))
	r.parse = func(d *jute.Decoder) { r.v = d.Stat() }
	return r
}

func newDelete(c chroot, op Delete) *Reply[struct{}] {
	r := &Reply[struct{}]{}
	r.end(op.append(r.begin(jute.OpDelete, op.Path, len(op.Path)+16), c))
	return r
}

// Create makes a node.
func (c *Conn) Create(ctx context.Context, op Create) (Created, error) {
	return do(ctx, c, newCreate(c.root, op))
}

// Get reads a node.
func (c *Conn) Get(ctx context.Context, path string) (Node, error) {
	return do(ctx, c, newGet(c.root, path, noWatch))
}

// GetW reads a node and watches it for a change of its data and for its deletion.
func (c *Conn) GetW(ctx context.Context, path string) (Node, *Watch, error) {
	return doW(ctx, c, newGet(c.root, path, watchData))
}

// Exists returns the Stat of a node. It returns nil, without an error, if the node does not exist. It needs
// no permission.
func (c *Conn) Exists(ctx context.Context, path string) (*Stat, error) {
	return do(ctx, c, newExists(c.root, path, noWatch))
}

// ExistsW is like Exists, and watches the node for its next change or, if it does not exist, for its
// creation.
func (c *Conn) ExistsW(ctx context.Context, path string) (*Stat, *Watch, error) {
	return doW(ctx, c, newExists(c.root, path, watchData))
}

// Children lists a node's children, in no order.
func (c *Conn) Children(ctx context.Context, path string) ([]string, Stat, error) {
	n, err := c.Names(ctx, path)
	defer n.Free()
	return n.List(), n.Stat, err
}

// ChildrenW is like Children, and watches the node for a change of the list and for its deletion.
func (c *Conn) ChildrenW(ctx context.Context, path string) ([]string, Stat, *Watch, error) {
	n, w, err := doW(ctx, c, newNames(c.root, path, watchChildren))
	defer n.Free()
	return n.List(), n.Stat, w, err
}

// Names is like Children, for long lists: it allocates no memory for each name.
func (c *Conn) Names(ctx context.Context, path string) (Names, error) {
	return do(ctx, c, newNames(c.root, path, noWatch))
}

// Set changes a node's data if the node has this version; -1 stands for any version.
func (c *Conn) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	return do(ctx, c, newSet(c.root, SetData{Path: path, Data: data, Version: version}))
}

// Delete removes a node if the node has this version; -1 stands for any version.
func (c *Conn) Delete(ctx context.Context, path string, version int32) error {
	return errOf(do(ctx, c, newDelete(c.root, Delete{Path: path, Version: version})))
}

// Sync waits until the server has every write that was complete before the call, by any client, so
// that the next read shows it.
func (c *Conn) Sync(ctx context.Context, path string) error {
	return errOf(do(ctx, c, newSync(c.root, path)))
}

// Confirm asks the leader to confirm that the session lives. Unlike a read, the request is not repeated after
// a lost connection.
func (c *Conn) Confirm(ctx context.Context) error {
	r := &Reply[struct{}]{}
	r.end(jute.AppendString(r.begin(jute.OpSync, "/", 1), "/"))
	return errOf(do(ctx, c, r))
}

// GetACL returns the access control list of a node.
func (c *Conn) GetACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	type result struct {
		acl []ACL
		st  Stat
	}
	r := &Reply[result]{}
	r.pathRead(c.root, jute.OpGetACL, path, noWatch)
	r.parse = func(d *jute.Decoder) {
		acl, _ := d.ACL()
		for i, a := range acl {
			acl[i].ID = ID{Scheme: strings.Clone(a.Scheme), ID: strings.Clone(a.ID.ID)}
		}
		r.v = result{acl, d.Stat()}
	}
	v, err := do(ctx, c, r)
	return v.acl, v.st, err
}

// SetACL changes the access control list of a node if the list has this version; -1 stands for any version.
func (c *Conn) SetACL(ctx context.Context, path string, acl []ACL, version int32) (Stat, error) {
	r, full := &Reply[Stat]{}, c.root.full(path)
	b := jute.AppendString(r.begin(jute.OpSetACL, path, len(full)+64), full)
	r.end(jute.AppendInt(jute.AppendACL(b, acl), version))
	r.parse = func(d *jute.Decoder) { r.v = d.Stat() }
	return do(ctx, c, r)
}

// ChildrenCount returns the number of a node's descendants.
func (c *Conn) ChildrenCount(ctx context.Context, path string) (int, error) {
	r := &Reply[int]{}
	r.pathRead(c.root, jute.OpGetAllChildrenNumber, path, noWatch)
	r.parse = func(d *jute.Decoder) { r.v = int(d.Int()) }
	return do(ctx, c, r)
}

// Ephemerals lists this session's ephemeral nodes whose path begins with `prefix`.
func (c *Conn) Ephemerals(ctx context.Context, prefix string) ([]string, error) {
	r := &Reply[[]string]{}
	r.pathRead(c.root, jute.OpGetEphemerals, prefix, noWatch)
	r.parse = func(d *jute.Decoder) {
		list, _ := d.Strings()
		for _, p := range list {
			if c.root.has(p) {
				r.v = append(r.v, c.root.own(strings.Clone(p)))
			}
		}
	}
	return do(ctx, c, r)
}

// WhoAmI returns the identities that the server knows for this connection.
func (c *Conn) WhoAmI(ctx context.Context) ([]ID, error) {
	r := &Reply[[]ID]{}
	r.end(r.begin(jute.OpWhoAmI, "", 0))
	r.repeat = true
	r.parse = func(d *jute.Decoder) {
		for range d.Count(8) {
			scheme, _ := d.String()
			id, _ := d.String()
			r.v = append(r.v, ID{Scheme: strings.Clone(scheme), ID: strings.Clone(id)})
		}
	}
	return do(ctx, c, r)
}

// Create adds a create request to the pipe.
func (p *Pipe) Create(op Create) *Reply[Created] { return add(p, newCreate(p.c.root, op)) }

// Get adds a read to the pipe.
func (p *Pipe) Get(path string) *Reply[Node] { return add(p, newGet(p.c.root, path, noWatch)) }

// Exists adds an exists request to the pipe.
func (p *Pipe) Exists(path string) *Reply[*Stat] { return add(p, newExists(p.c.root, path, noWatch)) }

// Names adds to the pipe a request for the names of a node's children.
func (p *Pipe) Names(path string) *Reply[Names] { return add(p, newNames(p.c.root, path, noWatch)) }

// GetW adds to the pipe a read that sets a watch; see [Reply.Watch].
func (p *Pipe) GetW(path string) *Reply[Node] { return add(p, newGet(p.c.root, path, watchData)) }

// ExistsW adds to the pipe an exists request that sets a watch; see [Reply.Watch].
func (p *Pipe) ExistsW(path string) *Reply[*Stat] {
	return add(p, newExists(p.c.root, path, watchData))
}

// Sync adds a sync to the pipe. Later reads of the pipe show every write that was complete before the sync.
func (p *Pipe) Sync(path string) *Reply[struct{}] { return add(p, newSync(p.c.root, path)) }

// Set adds a change of data to the pipe.
func (p *Pipe) Set(op SetData) *Reply[Stat] { return add(p, newSet(p.c.root, op)) }

// Delete adds a deletion to the pipe.
func (p *Pipe) Delete(op Delete) *Reply[struct{}] { return add(p, newDelete(p.c.root, op)) }

// Multi adds a transaction to the pipe.
func (p *Pipe) Multi(ops ...Op) *Reply[[]Result] { return add(p, newMulti(p.c.root, ops)) }

// Names is a list of children as it came from the server.
type Names struct {
	Stat Stat // Stat of the parent node
	n    int
	raw  []byte // the n names, each after its length; readNames has checked their form
	body []byte // the memory of raw
}

// freeLists holds the memory of freed lists for the next list: a client that waits in a long queue reads the
// whole list again and again.
var freeLists sync.Pool // contains *[]byte

// listMemory returns memory for a list.
func listMemory(size int) []byte {
	if b, _ := freeLists.Get().(*[]byte); b != nil && cap(*b) >= size {
		return (*b)[:size]
	}
	return make([]byte, size)
}

// Free makes the memory available for other lists. The caller must not use the list or its names after Free.
// If Free is not called, the garbage collector frees the list.
func (l Names) Free() {
	jute.Overwrite(l.body)
	if body := l.body; cap(body) >= 4<<10 {
		freeLists.Put(&body)
	}
}

// readNames takes over the decoder's memory.
func readNames(d *jute.Decoder) Names {
	list := Names{body: d.Rest(), n: max(d.Count(4), 0)}
	list.raw = d.Rest()
	start := d.Offset()
	for range list.n {
		d.Buffer()
	}
	list.raw = list.raw[:d.Offset()-start]
	list.Stat = d.Stat()
	return list
}

// Len returns the number of names.
func (l Names) Len() int { return l.n }

// All returns the names one after another. The names share the memory of the list, so a caller must clone a
// name that it uses longer than the list.
func (l Names) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		d := jute.NewDecoder(l.raw)
		for range l.n {
			if name, _ := d.String(); !yield(name) {
				return
			}
		}
	}
}

// List returns the names as a slice with its own memory.
func (l Names) List() []string {
	if l.raw == nil {
		return nil
	}
	names := make([]string, 0, l.n)
	for name := range l.All() {
		names = append(names, strings.Clone(name))
	}
	return names
}

// MakePath creates a persistent node, or a container, and all missing nodes above it, the chroot included. If
// the node already exists, that is no error. The nodes above it get the same mode. The server may remove a
// container without children again at any time.
func (c *Conn) MakePath(ctx context.Context, path string, mode Mode, acl []ACL) error {
	return c.makePath(ctx, c.root.full(path), mode, acl)
}

func (c *Conn) makePath(ctx context.Context, full string, mode Mode, acl []ACL) error {
	for {
		r := newCreate("", Create{Path: full, Data: []byte{}, Mode: mode, ACL: acl})
		r.repeat = true // to create it twice is harmless
		_, err := do(ctx, c, r)
		switch {
		case err == nil, errors.Is(err, ErrNodeExists):
			return nil
		case errors.Is(err, ErrNoAuth): // says nothing about existence: the server checks the permission first
			if st, look := do(ctx, c, newExists("", full, noWatch)); look == nil && st != nil {
				return nil
			}
			return err
		case !errors.Is(err, ErrNoNode):
			return err
		}
		if err := c.makePath(ctx, path.Dir(full), mode, acl); err != nil {
			return err
		}
	}
}
