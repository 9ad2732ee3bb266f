package zkfiles

import (
	"errors"
	"fmt"
	"io"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// SnapshotReader reads a snapshot node by node.
type SnapshotReader struct {
	DBID     int64
	Sessions map[int64]int32 // timeouts in ms, by id

	// These fields are known only after Next has returned io.EOF. A field is zero if the snapshot lacks it.
	Digest   *Digest
	LastZxid int64 // zxid of the newest change in it; only in releases from 3.9 on

	s    *stream
	acls map[int64][]jute.ACL
	n    int64
	stat [8 + statSize]byte
}

// NewSnapshotReader reads the header, the sessions and the ACLs, which come before the nodes.
func NewSnapshotReader(r io.Reader) (*SnapshotReader, error) {
	s := newStream(r)
	dbID, err := checkHeader(s, snapshotMagic)
	if err != nil {
		return nil, err
	}
	sr := &SnapshotReader{DBID: dbID, Sessions: map[int64]int32{}, s: s, acls: map[int64][]jute.ACL{}}
	for n := sr.count(); n > 0 && s.err == nil; n-- {
		id := s.long()
		sr.Sessions[id] = s.int()
	}
	for n := sr.count(); n > 0 && s.err == nil; n-- {
		id := s.long()
		sr.acls[id] = sr.acl()
	}
	return sr, s.err
}

// count() reads the number of items that follow.
func (r *SnapshotReader) count() int32 {
	n := r.s.int()
	if n < 0 && r.s.err == nil {
		r.s.off -= 4
		r.s.fail(errLength)
	}
	return n
}

// acl() reads the entries of one ACL.
func (r *SnapshotReader) acl() []jute.ACL {
	var list []jute.ACL
	for n := r.count(); n > 0 && r.s.err == nil; n-- {
		perms := r.s.int()
		list = append(list, jute.ACL{Perms: perms, ID: jute.ID{Scheme: string(r.s.bytes()),
			ID: string(r.s.bytes())}})
	}
	return list
}

// openACL is the number of the ACL that allows every client everything. The file does not hold that ACL.
const openACL = -1

// Next returns the next node, parents before their children, the root with the path "/". At the end, if every
// checksum was right, it returns io.EOF. The nodes are valid only after io.EOF.
func (r *SnapshotReader) Next() (path string, n *tree.Info, err error) {
	at := r.s.off
	b := r.s.bytes()
	if r.s.err != nil {
		return "", nil, r.s.err
	}
	path = string(b)
	if path == "/" {
		return "", nil, r.finish()
	}
	if path == "" {
		path = "/"
	}
	if (r.n == 0) != (path == "/") {
		err := fmt.Errorf("node %q is out of place: the root must come first, and only once", path)
		return "", nil, &FormatError{at, err}
	}
	r.n++
	n = &tree.Info{Data: r.s.bytes()}
	r.s.full(r.stat[:])
	if r.s.err != nil {
		return "", nil, r.s.err
	}
	if !decodeStat(r.stat[8:], n) {
		return "", nil, &FormatError{at, fmt.Errorf("node %q has an owner of unknown kind", path)}
	}
	d := jute.NewDecoder(r.stat[:8])
	n.ACL = jute.WorldAnyone
	if id := d.Long(); id != openACL {
		list, ok := r.acls[id]
		if !ok {
			return "", nil, &FormatError{at, fmt.Errorf("node %q has ACL %d, which is not in the file", path, id)}
		}
		n.ACL = someACL(list)
	}
	return path, n, nil
}

// finish() reads the bytes after the nodes.
func (r *SnapshotReader) finish() error {
	if r.n == 0 {
		r.s.fail(errors.New("it has no root"))
		return r.s.err
	}
	r.seal()
	if !r.s.atEnd() {
		r.Digest = &Digest{Zxid: r.s.long(), Version: r.s.int()}
		if r.Digest.Version < 2 { // no release wrote this version, so its digest is not used
			r.s.bytes()
			r.Digest = nil
		} else {
			r.Digest.Sum = uint64(r.s.long())
		}
		r.seal()
	}
	if !r.s.atEnd() {
		r.LastZxid = r.s.long()
		r.seal()
	}
	if !r.s.atEnd() {
		r.s.fail(errors.New("bytes follow the end"))
	}
	if r.s.err != nil {
		return r.s.err
	}
	return io.EOF
}

// seal() compares the checksum of all bytes so far with the checksum in the file.
func (r *SnapshotReader) seal() {
	sum, at := r.s.sum.Sum32(), r.s.off
	got := r.s.long()
	end := r.s.bytes()
	if r.s.err == nil && (got != int64(sum) || string(end) != "/") {
		r.s.err = &FormatError{
			at, fmt.Errorf("the checksum is %#x, but the file says %#x: a byte has changed", sum, got)}
	}
}

// ACLs returns how many ACLs are in the file.
func (r *SnapshotReader) ACLs() int { return len(r.acls) }

// Offset returns how many bytes have been read.
func (r *SnapshotReader) Offset() int64 { return r.s.off }
