package tree

import "github.com/zlockd/zlockd/jute"

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
