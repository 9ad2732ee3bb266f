package tree

import "github.com/zlockd/zlockd/jute"

func (s *Snapshot) header(b []byte) []byte {
	b = append(b, recHeader, snapshotVersion)
	b = jute.AppendLong(b, s.zxid)
	b = jute.AppendLong(b, int64(s.hash))
	return jute.AppendLong(b, int64(s.nodes))
}

func (s *Snapshot) end(b []byte) []byte { return jute.AppendLong(append(b, recEnd), int64(s.out)) }

// node writes a node. At least the first shared bytes of its path are equal to those of the previous node's
// path.
func (s *Snapshot) node(b []byte, path string, shared int, st *state) []byte {
	id, ok := s.acls[st.acl]
	if !ok {
		id = uint32(len(s.acls))
		s.acls[st.acl] = id
		b = append(b, recACL)
		b = append(b, st.acl.Key()...)
	}
	s.out++
	b = append(b, recNode)
	for shared < min(len(path), len(s.last)) && path[shared] == s.last[shared] {
		shared++
	}
	s.last = append(s.last[:shared], path[shared:]...)
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
