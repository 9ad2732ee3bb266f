package tree

import (
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/jute"
)

// encoder writes the records of a snapshot's stream.
type encoder struct {
	acls map[*ACL]uint32 // those written, by number
	last []byte          // path of the node written last
	out  int             // nodes written
}

func newEncoder() encoder { return encoder{acls: map[*ACL]uint32{}} }

func appendHeader(b []byte, zxid int64, hash digest, nodes int) []byte {
	b = append(b, recHeader, snapshotVersion)
	b = jute.AppendLong(b, zxid)
	b = jute.AppendLong(b, int64(hash))
	return jute.AppendLong(b, int64(nodes))
}

func (e *encoder) end(b []byte) []byte {
	return jute.AppendLong(append(b, recEnd), int64(e.out))
}

// node writes a node. At least shared bytes of its path are those of the node
// before it.
func (e *encoder) node(b []byte, path string, shared int, st *state) []byte {
	id, ok := e.acls[st.acl]
	if !ok {
		id = uint32(len(e.acls))
		e.acls[st.acl] = id
		b = append(b, recACL)
		b = append(b, st.acl.key...)
	}
	e.out++
	b = append(b, recNode)
	for shared < min(len(path), len(e.last)) && path[shared] == e.last[shared] {
		shared++
	}
	e.last = append(e.last[:shared], path[shared:]...)
	b = jute.AppendInt(b, int32(shared))
	b = jute.AppendString(b, path[shared:])
	if st.null {
		b = jute.AppendInt(b, -1)
	} else {
		b = jute.AppendString(b, st.data)
	}
	b = jute.AppendInt(b, int32(id))
	for _, v := range [...]int64{st.czxid, st.mzxid, st.pzxid, st.ctime, st.mtime, st.owner} {
		b = jute.AppendLong(b, v)
	}
	for _, v := range [...]int32{st.version, st.cv, st.aversion} {
		b = jute.AppendInt(b, v)
	}
	return append(b, byte(st.kind))
}

// Encoder writes the stream of a snapshot for nodes that come from elsewhere,
// without holding them all. A Loader reads it.
type Encoder struct {
	zxid  int64
	nodes int // how many were promised
	enc   encoder
	acls  aclTable
}

// NewEncoder returns an Encoder for a tree of so many nodes. None of them was changed behind zxid.
func NewEncoder(zxid int64, nodes int) *Encoder {
	return &Encoder{zxid: zxid, nodes: nodes, enc: newEncoder(), acls: newACLTable()}
}

// Node appends a node, and the header before the first. The root comes first
// and parents before their children. Of the Stat in i the lengths, the number
// of children and the cversion do not count: they follow from the tree.
func (e *Encoder) Node(b []byte, path string, i *Info) ([]byte, error) {
	if e.enc.out == 0 {
		b = appendHeader(b, e.zxid, 0, e.nodes)
	}
	s := state{
		data: stringOf(i.Data), null: i.Data == nil,
		czxid: i.Czxid, mzxid: i.Mzxid, pzxid: i.Pzxid, ctime: i.Ctime, mtime: i.Mtime,
		version: i.Version, cv: i.Counter, aversion: i.Aversion, kind: i.Kind,
	}
	switch i.Kind {
	case EphemeralNode:
		s.owner = i.EphemeralOwner
	case TTLNode:
		s.owner = i.TTL
	}
	switch {
	case path == "/" && e.enc.out > 0 || path != "/" && !wellFormed(path) || len(path) > maxLoadPath:
		return b, errors.New("illegal path")
	case len(i.ACL) == 0:
		return b, errors.New("no ACL")
	}
	if err := s.sane(e.zxid); err != nil {
		return b, err
	}
	s.acl = e.acls.intern(i.ACL)
	return e.enc.node(b, path, 0, &s), nil
}

// End appends the end.
func (e *Encoder) End(b []byte) ([]byte, error) {
	if e.enc.out != e.nodes {
		return b, fmt.Errorf("tree: %d nodes were promised and %d written", e.nodes, e.enc.out)
	}
	return e.enc.end(b), nil
}
