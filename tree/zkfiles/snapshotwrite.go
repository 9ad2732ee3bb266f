package zkfiles

import (
	"errors"
	"hash"
	"hash/adler32"
	"io"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// SnapshotWriter writes a snapshot that ZooKeeper 3.4 to 3.9 can load.
type SnapshotWriter struct {
	w     io.Writer
	sum   hash.Hash32
	buf   []byte
	acls  map[string]int64
	known []jute.ACL // the ACL of the last node
	id    int64      // the number of that ACL
	nodes uint64     // sum of the nodes' digests
	err   error
}

// NewSnapshotWriter writes the beginning of a snapshot: the sessions, and every ACL that a node
// will have.
func NewSnapshotWriter(w io.Writer, dbID int64, sessions map[int64]int32, acls [][]jute.ACL) (*SnapshotWriter,
	error) {
	sw := &SnapshotWriter{w: w, sum: adler32.New(), acls: map[string]int64{}}
	b := append([]byte(nil), snapshotMagic...)
	b = jute.AppendInt(b, fileVersion)
	b = jute.AppendLong(b, dbID)
	b = jute.AppendInt(b, int32(len(sessions)))
	for _, id := range slices.Sorted(maps.Keys(sessions)) {
		b = jute.AppendLong(b, id)
		b = jute.AppendInt(b, sessions[id])
	}
	var lists []byte
	for _, list := range acls {
		key := jute.AppendACL(nil, list)
		if _, ok := sw.acls[string(key)]; ok {
			continue
		}
		id := int64(len(sw.acls) + 1)
		sw.acls[string(key)] = id
		lists = append(jute.AppendLong(lists, id), key...)
	}
	b = jute.AppendInt(b, int32(len(sw.acls)))
	b = append(b, lists...)
	sw.buf = b
	return sw, sw.flush(0)
}

// flush() writes the buffer if the buffer is longer than `least`.
func (w *SnapshotWriter) flush(least int) error {
	if w.err != nil || len(w.buf) <= least {
		return w.err
	}
	w.sum.Write(w.buf)
	_, w.err = w.w.Write(w.buf)
	w.buf = w.buf[:0]
	return w.err
}

// Node writes a node. The root comes first, parents before their children.
func (w *SnapshotWriter) Node(path string, n *tree.Info) error {
	if path == "/" {
		path = ""
	}
	if len(n.ACL) == 0 || len(w.known) != len(n.ACL) || &w.known[0] != &n.ACL[0] {
		id, ok := w.acls[string(jute.AppendACL(nil, n.ACL))]
		if !ok {
			return errors.New("zkfiles: a node has an ACL that NewSnapshotWriter was not given")
		}
		w.known, w.id = n.ACL, id
	}
	w.nodes += digest(path, n)
	w.buf = jute.AppendString(w.buf, path)
	w.buf = jute.AppendBuffer(w.buf, n.Data)
	w.buf = jute.AppendLong(w.buf, w.id)
	w.buf = appendStat(w.buf, n)
	return w.flush(128 << 10)
}

// Close writes the end. zxid is that of the newest change in the snapshot.
func (w *SnapshotWriter) Close(zxid int64) error {
	w.buf = jute.AppendString(w.buf, "/")
	w.seal()
	w.buf = jute.AppendLong(w.buf, zxid)
	w.buf = jute.AppendInt(w.buf, digestVersion)
	w.buf = jute.AppendLong(w.buf, int64(w.nodes))
	w.seal()
	return w.flush(0)
}

func (w *SnapshotWriter) seal() {
	_ = w.flush(0) // w.err keeps the error for the next flush
	w.buf = jute.AppendLong(w.buf, int64(w.sum.Sum32()))
	w.buf = jute.AppendString(w.buf, "/")
}
