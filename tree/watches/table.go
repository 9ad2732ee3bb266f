// Package watches matches events with the connections that wait for them. A [Table] belongs to a server and
// is never part of the tree.
package watches

import (
	"strings"
)

// New returns a Table without watches.
func New[W comparable]() *Table[W] {
	return &Table[W]{big: map[uint32]map[uint32]uint32{}}
}

// Add adds a watch of kind k for conn at path, which need not exist. Adding it again has no effect. The path
// is copied.
func (w *Table[W]) Add(conn W, path string, k Kind) {
	c, ok := w.byConn.m[conn]
	if !ok {
		c = w.conns.get()
		w.conns.at(c).conn = conn
		w.byConn.set(conn, c)
	}
	p, ok := w.byPath.m[path]
	if !ok {
		path = strings.Clone(path)
		p = w.paths.get()
		*w.paths.at(p) = watchedPath{path: path, status: pathUsed}
		w.byPath.set(path, p)
		w.pathBytes += len(path)
	}
	r, n := w.find(c, p)
	if r == 0 {
		r = w.records.get()
		*w.records.at(r) = watch{path: p, conn: c}
		w.index(r, n)
	}
	w.set(r, w.records.at(r).modes|modes(1<<k))
}

// find() returns the record of connection c at path p, and how many records it compared. r is 0 if c does not
// watch p.
func (w *Table[W]) find(c, p uint32) (r uint32, n int) {
	path := w.paths.at(p)
	if path.status == pathIndexed {
		return w.big[p][c], 0
	}
	for r = path.first(); r != 0 && w.records.at(r).conn != c; r = w.after(path, r) {
		n++
	}
	return r, n
}

// index() adds the new record r to the map `big` if `big` has the path of r. If `big` lacks the path, but the
// path has at least indexAbove other records, index() first adds the path to `big`. n is the number of the
// other records.
func (w *Table[W]) index(r uint32, n int) {
	rec := w.records.at(r)
	path := w.paths.at(rec.path)
	if path.status != pathIndexed {
		if n < indexAbove {
			return
		}
		path.status = pathIndexed
		m := make(map[uint32]uint32, 2*n)
		for o := path.first(); o != 0; o = w.after(path, o) {
			m[w.records.at(o).conn] = o
		}
		w.big[rec.path] = m
	}
	w.big[rec.path][rec.conn] = r
}

// Remove ends the watches of type watcherType that conn has at path. It reports whether there were any.
func (w *Table[W]) Remove(conn W, path string, watcherType int32) bool {
	r := w.lookup(conn, path)
	if r == 0 {
		return false
	}
	rec := w.records.at(r)
	left := rec.modes &^ watcherModes(watcherType)
	if left == rec.modes {
		return false
	}
	if idx, ok := w.big[rec.path]; ok && left == 0 {
		delete(idx, rec.conn)
	}
	w.set(r, left)
	return true
}

// Has reports whether conn has a watch of this type at exactly this path.
func (w *Table[W]) Has(conn W, path string, watcherType int32) bool {
	r := w.lookup(conn, path)
	return r != 0 && w.records.at(r).modes&watcherModes(watcherType) != 0
}

func (w *Table[W]) lookup(conn W, path string) uint32 {
	c, ok := w.byConn.m[conn]
	if !ok {
		return 0
	}
	p, ok := w.byPath.m[path]
	if !ok {
		return 0
	}
	r, _ := w.find(c, p)
	return r
}

// dropAtOnce bounds the watches that one call of Drop removes, and so the time of the call.
const dropAtOnce = 4096

// Drop removes a connection: it gets no more events and does not count any longer. If it had very many
// watches, part of their memory is still held. In that case Drop returns true, and the caller calls Sweep
// until Sweep returns false. The cost depends only on the connection's own watches.
func (w *Table[W]) Drop(conn W) (more bool) {
	if id, ok := w.byConn.m[conn]; ok {
		w.byConn.remove(conn)
		c := w.conns.at(id)
		c.dead = true
		w.data -= c.data
		w.child -= c.child
		if c.data > 0 {
			w.dataConns--
		}
		w.dead = append(w.dead, id)
	}
	return w.Sweep(dropAtOnce)
}

// Sweep removes up to `max` watches of dropped connections and reports whether more are left.
func (w *Table[W]) Sweep(max int) (more bool) {
	for len(w.dead) > 0 {
		id := w.dead[len(w.dead)-1]
		c := w.conns.at(id)
		for ; c.first != 0; max-- {
			if max <= 0 {
				return true
			}
			if idx, ok := w.big[w.records.at(c.first).path]; ok {
				delete(idx, id)
			}
			w.set(c.first, 0)
		}
		w.conns.put(id)
		w.dead = w.dead[:len(w.dead)-1]
	}
	w.dead = w.dead[:0]
	return false
}

// WatchersAt calls f for at most `most` connections that watch exactly this path, in the order in which they
// began to watch.
func (w *Table[W]) WatchersAt(path string, most int, f func(W)) {
	p, ok := w.byPath.m[path]
	if !ok {
		return
	}
	at := w.paths.at(p)
	for r := at.first(); r != 0 && most > 0; r = w.after(at, r) {
		if c := w.conns.at(w.records.at(r).conn); !c.dead {
			f(c.conn)
			most--
		}
	}
}
