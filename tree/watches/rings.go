package watches

import (
	"cmp"

	"github.com/zlockd/zlockd/jute"
)

// Kind says for what a watch waits, and whether the watch stays after an event.
type Kind uint8

// The kinds of watches. Data and Child watches are used up by the first event they match; Persistent and
// Recursive watches stay until they are removed.
const (
	Data       Kind = iota // set by getData and exists: the node itself
	Child                  // set by getChildren: the list of children, and the node's deletion
	Persistent             // what Data and Child wait for, at one path
	Recursive              // the node and every node below it, but no lists of children
)

// modes is a set of kinds.
type modes uint8

const (
	dataMode       = modes(1 << Data)
	childMode      = modes(1 << Child)
	persistentMode = modes(1 << Persistent)
	recursiveMode  = modes(1 << Recursive)

	oneShot       = dataMode | childMode
	dataRegistry  = dataMode | persistentMode | recursiveMode
	childRegistry = childMode | persistentMode
)

// watcherModes returns the modes that a watcher type stands for. An unknown type has none.
func watcherModes(watcherType int32) modes {
	switch watcherType {
	case jute.WatcherChildren:
		return childMode
	case jute.WatcherData:
		return dataMode
	case jute.WatcherAny:
		return dataRegistry | childRegistry
	case jute.WatcherPersistent:
		return persistentMode
	case jute.WatcherPersistentRecursive:
		return recursiveMode
	}
	return 0
}

// Known reports whether clients may name this watcher type.
func Known(watcherType int32) bool { return watcherModes(watcherType) != 0 }

// Table knows which connections wait for which events. W is a connection.
//
// To a client there are two registries: one for data, fed by Data, Persistent and Recursive watches, and one
// for children, fed by Child and Persistent ones. Here every pair of a connection and a path is one record
// with the set of its kinds; each kind is added and removed on its own. A record is in a list of its path and
// in a list of its connection. So the cost of firing, of removing and of the end of a connection depends only
// on the watches concerned, not on the number of others.
//
// Table is not safe for concurrent use. The functions that are passed to its methods must not call its
// methods.
type Table[W comparable] struct {
	byPath    shrinkMap[string]
	byConn    shrinkMap[W]
	recursive shrinkMap[string] // the paths with Recursive watches

	paths   slab[watchedPath]
	conns   slab[watcher[W]]
	records slab[watch]

	// big finds the record of a connection at a path that has many records.
	big map[uint32]map[uint32]uint32 // path, connection → record

	dead []uint32 // dropped connections whose records are not all removed
	turn uint64   // counts the calls of Fire
	gone []uint32 // connections that leave `big` after a path has fired

	data, child int // pairs of connection and path in each registry
	dataConns   int // connections in the data registry
	dataPaths   int // paths in the data registry
	pathBytes   int
}

// watch is what one connection waits for at one path: a member of two rings.
type watch struct {
	path, conn uint32
	in         [2]link // the record's links in the ring of the path and in the ring of the connection
	modes      modes   // never empty
}

// watchedPath is a path with watches. A million of them may exist.
type watchedPath struct {
	path   string
	plain  uint32 // first record in the ring of the watches that do not see changes below this path
	deep   uint32 // first record in the ring of the watches that see changes below this path
	data   uint32 // number of records in the data registry
	status uint32 // 0: the item is not in use
}

const (
	pathUsed = 1 + iota
	pathIndexed
)

// A path gets an index when it has more than indexAbove records. Before that, its records are searched one by
// one.
const indexAbove = 8

// watcher is a connection that waits for something.
type watcher[W any] struct {
	conn        W
	first       uint32 // the first record in the ring of the connection's records
	data, child int    // how many of its pairs are in each registry
	bytes       int    // memory of its records, as if no other connection shared their paths
	told        uint64 // the turn in which the connection was last told something
	dead        bool   // dropped
}

// set() changes the modes of record r. Only set() moves records between rings and counts them. With no modes
// left the record is removed. Its path or connection is removed too if this was its last record. The caller
// has already removed the record from the map `big`.
func (w *Table[W]) set(r uint32, now modes) {
	rec := w.records.at(r)
	was := rec.modes
	rec.modes = now
	w.count(rec, was, now)

	if was == 0 {
		w.joinConn(r)
		w.joinPath(r)
		return
	}
	if now == 0 {
		c, p := rec.conn, rec.path
		w.leavePath(r, was)
		w.leaveConn(r)
		w.records.put(r)
		if path := w.paths.at(p); path.plain == 0 && path.deep == 0 {
			w.forgetPath(p)
		}
		if conn := w.conns.at(c); conn.first == 0 && !conn.dead {
			w.byConn.remove(conn.conn)
			w.conns.put(c)
		}
		return
	}
	if (was^now)&recursiveMode != 0 {
		w.leavePath(r, was)
		w.joinPath(r)
	}
}

// count() updates the numbers of pairs, paths and connections in each registry.
func (w *Table[W]) count(rec *watch, was, now modes) {
	data := in(now, dataRegistry) - in(was, dataRegistry)
	child := in(now, childRegistry) - in(was, childRegistry)

	p := w.paths.at(rec.path)
	before := min(p.data, 1)
	p.data += uint32(data)
	w.dataPaths += int(min(p.data, 1)) - int(before)

	c := w.conns.at(rec.conn)
	if c.dead {
		return // Drop has already subtracted the pairs of this connection
	}
	w.data += data
	w.child += child
	had := min(c.data, 1)
	c.data += data
	c.child += child
	w.dataConns += min(c.data, 1) - had
}

func in(m, registry modes) int {
	if m&registry != 0 {
		return 1
	}
	return 0
}

// ring() returns the head of the ring that a record with these modes belongs to.
func (p *watchedPath) ring(m modes) *uint32 {
	if m&recursiveMode != 0 {
		return &p.deep
	}
	return &p.plain
}

// The two rings of a record.
const (
	ofPath = iota
	ofConn
)

// link is a record's place in a ring: its neighbours, or the record itself if it is alone.
type link struct{ prev, next uint32 }

// join() puts r at the end of the ring that begins at `head`.
func (w *Table[W]) join(head *uint32, ring int, r uint32) {
	place := &w.records.at(r).in[ring]
	if *head == 0 {
		*head, *place = r, link{prev: r, next: r}
		return
	}
	first := &w.records.at(*head).in[ring]
	*place = link{prev: first.prev, next: *head}
	w.records.at(first.prev).in[ring].next = r
	first.prev = r
}

// leave() takes r out of the ring that begins at `head`.
func (w *Table[W]) leave(head *uint32, ring int, r uint32) {
	place := w.records.at(r).in[ring]
	if place.next == r {
		*head = 0
		return
	}
	w.records.at(place.prev).in[ring].next = place.next
	w.records.at(place.next).in[ring].prev = place.prev
	if *head == r {
		*head = place.next
	}
}

// joinPath puts r at the end of its path's ring: the connection that came first is told first.
func (w *Table[W]) joinPath(r uint32) {
	rec := w.records.at(r)
	p := w.paths.at(rec.path)
	w.join(p.ring(rec.modes), ofPath, r)
	if p.deep == r {
		w.recursive.set(p.path, rec.path)
	}
}

// leavePath takes r, which had these modes, out of its path's ring.
func (w *Table[W]) leavePath(r uint32, was modes) {
	p := w.paths.at(w.records.at(r).path)
	w.leave(p.ring(was), ofPath, r)
	if was&recursiveMode != 0 && p.deep == 0 {
		w.recursive.remove(p.path)
	}
}

// first() returns the first record of the path. The records whose watches do not see changes below the path
// come first.
func (p *watchedPath) first() uint32 { return cmp.Or(p.plain, p.deep) }

// after() returns the record after r at its path. It returns 0 if r is the last.
func (w *Table[W]) after(p *watchedPath, r uint32) uint32 {
	switch next := w.records.at(r).in[ofPath].next; next {
	case p.plain:
		return p.deep
	case p.deep:
		return 0
	default:
		return next
	}
}

func (w *Table[W]) joinConn(r uint32) {
	rec := w.records.at(r)
	c := w.conns.at(rec.conn)
	c.bytes += perWatch + perPath + len(w.paths.at(rec.path).path)
	w.join(&c.first, ofConn, r)
}

func (w *Table[W]) leaveConn(r uint32) {
	rec := w.records.at(r)
	c := w.conns.at(rec.conn)
	c.bytes -= perWatch + perPath + len(w.paths.at(rec.path).path)
	w.leave(&c.first, ofConn, r)
}

func (w *Table[W]) forgetPath(p uint32) {
	path := w.paths.at(p)
	w.pathBytes -= len(path.path)
	w.byPath.remove(path.path)
	delete(w.big, p)
	w.paths.put(p)
}

// Count returns the number of watches as ZooKeeper counts them: pairs of
// connection and path in the data registry plus those in the child registry.
// A Persistent watch counts twice.
func (w *Table[W]) Count() int { return w.data + w.child }

// Of returns the part of Count that belongs to conn, and about how much memory conn's watches would take if
// no other connection had any.
func (w *Table[W]) Of(conn W) (count, bytes int) {
	id, ok := w.byConn.m[conn]
	if !ok {
		return 0, 0
	}
	c := w.conns.at(id)
	return c.data + c.child, c.bytes
}

// Summary returns how many connections and how many paths the data registry has, and how many pairs of a
// connection and a path.
func (w *Table[W]) Summary() (conns, paths, pairs int) {
	return w.dataConns, w.dataPaths, w.data
}

// Approximate sizes in memory, in bytes.
const (
	perWatch = 28
	perPath  = 80 // an item and its place in the map; the path itself not counted
	perConn  = 96
)

// Bytes returns about how much memory the watches take.
func (w *Table[W]) Bytes() int64 {
	return int64(w.pathBytes) + int64(w.records.used)*perWatch +
		int64(w.paths.used)*perPath + int64(w.conns.used)*perConn
}

// Scan calls f for the pairs in the data registry, path by path. It stops after the path at which it has
// called f for `max` pairs, and returns where the next call must begin, or 0 at the end. The first call
// starts from 0. Watches may come and go between calls: a pair that is there all the time is seen once.
func (w *Table[W]) Scan(from uint32, max int, f func(path string, conn W)) (next uint32) {
	for p := from; p < w.paths.end(); p++ {
		path := w.paths.peek(p)
		if path == nil {
			p |= chunkSize - 1
			continue
		}
		if path.status == 0 {
			continue
		}
		if max <= 0 {
			return p
		}
		for r := path.first(); r != 0; r = w.after(path, r) {
			rec := w.records.at(r)
			if c := w.conns.at(rec.conn); !c.dead && rec.modes&dataRegistry != 0 {
				f(path.path, c.conn)
			}
			max--
		}
	}
	return 0
}
